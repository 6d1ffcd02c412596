"""Pools as papers made them: what a protocol sets, refuses and finds unmet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import DataError, SettingError
from icalib.data.pools import as_pools, read_pool_set, read_rows
from icalib.data.prepare import prepare
from icalib.data.protocols import PROTOCOLS, unmet, with_protocol
from icalib.data.schema import SPLITS, Pool, PoolSet
from icalib.data.settings import PrepareSettings

WORDS = ("printer", "ink", "paper", "jam", "cable", "driver", "update", "reset", "login", "mail", "sync", "disk")


def utterance(dialogue: int, turn: int) -> str:
    return (
        " ".join(WORDS[(dialogue * (turn + 3) + step * step) % len(WORDS)] for step in range(4)) + f" {dialogue} {turn}"
    )


def accepted_turn(dialogue: int) -> int | None:
    """The first answer, the second, the third, or none."""
    return (1, 3, 5, None)[dialogue % 4]


def forum(
    folder: Path, corpus: str, *, name: str = "", marks: bool = True, dialogues: Iterable[int] = range(200)
) -> Path:
    """A forum corpus of six-turn dialogues; the first twenty have intents."""

    def turn_of(dialogue: int, turn: int) -> dict[str, Any]:
        tags = (["OQ"] if turn % 2 == 0 else ["PA"]) if dialogue < 20 else []
        own = {"tags": " ".join(tags), "vote": 0} if corpus == "msdialog" else {"intent": tags, "votes": 0}
        mark = {"is_answer": int(turn == accepted_turn(dialogue))} if marks else {}
        return {"actor_type": ("User", "Agent")[turn % 2], "utterance": utterance(dialogue, turn), **own, **mark}

    content = {
        str(dialogue): {"category": "Word", "utterances": [turn_of(dialogue, turn) for turn in range(6)]}
        for dialogue in dialogues
    }
    path = folder / (name or f"{corpus}.json")
    path.write_text(json.dumps(content))
    return path


def made(source: Path, protocol: str, **settings: Any) -> tuple[PoolSet, dict[str, list[Pool]]]:
    out = source.with_name(f"pools-{source.stem}-{protocol}")
    pool_set = prepare(source, out, PrepareSettings.model_validate({"protocol": protocol, **settings}))
    assert read_pool_set(out) == pool_set
    return pool_set, {
        split: list(as_pools(read_rows(out, split, range(pool_set.num_pools[split])))) for split in SPLITS
    }


def number_of(pool: Pool) -> int:
    return int(pool.dialog_id.rpartition("-")[2])


@pytest.mark.parametrize("corpus", ["msdialog", "mantis"])
def test_icast_has_accepted_answers_short_contexts_and_intents_in_training(corpus: str, tmp_path: Path) -> None:
    pool_set, pools = made(forum(tmp_path, corpus), "icast")
    found = [pool for split in SPLITS for pool in pools[split]]
    assert {number_of(pool) for pool in found} == {number for number in range(200) if accepted_turn(number)}
    for pool in found:
        turn = accepted_turn(number_of(pool))
        assert turn is not None
        assert pool.candidates[pool.label] == utterance(number_of(pool), turn)
        assert [one.text for one in pool.context] == [
            utterance(number_of(pool), t) for t in range(max(0, turn - 4), turn)
        ]
        assert len(pool.candidates) == 10
        assert len({text.split()[-2] for text in pool.candidates}) == 10  # from ten dialogues
    assert {number_of(pool) for split in SPLITS[1:] for pool in pools[split]}.isdisjoint(range(20))
    with_intents = [number_of(pool) < 20 for pool in sorted(pools["train"], key=lambda pool: pool.label_order)]
    assert with_intents == sorted(with_intents, reverse=True)
    assert sum(with_intents) == 15
    assert (pool_set.protocol, pool_set.answers, pool_set.negative_sampler) == ("icast", "accepted", "bm25-response")
    assert (pool_set.intents_in, pool_set.split_origin, pool_set.limit) == (("train",), "drawn", None)
    assert unmet(pool_set, PROTOCOLS["icast"]) == [
        sentence for sentence in unmet(pool_set, PROTOCOLS["icast"]) if "too few" in sentence
    ]


@pytest.mark.parametrize(
    ("protocol", "corpus", "sampler"),
    [
        ("gpf", "msdialog", "random"),
        ("gpf", "mantis", "random"),
        ("pg", "msdialog", "random"),
        ("pg", "mantis", "bm25-response"),
    ],
)
def test_gpf_and_pg_have_all_responses_and_whole_contexts(
    protocol: str, corpus: str, sampler: str, tmp_path: Path
) -> None:
    pool_set, pools = made(forum(tmp_path, corpus), protocol)
    found = [pool for split in SPLITS for pool in pools[split]]
    assert len(found) == 400  # two utterances before a response: the second and the third answer
    assert {len(pool.context) for pool in found} == {3, 5}
    assert pool_set.negative_sampler == sampler
    assert pool_set.answers == "all"
    assert pool_set.default_labelled_fraction == 1


def test_a_source_without_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="says which answers were accepted") as caught:
        made(forum(tmp_path, "msdialog", marks=False), "icast")
    assert '"is_answer": true' in caught.value.cure


@pytest.mark.parametrize(
    ("protocol", "settings", "option"),
    [
        ("icast", {"num_candidates": 5}, "--candidates 5"),
        ("icast", {"labelled": 0.2}, "--labelled 0.2"),
        ("gpf", {"negative_sampler": "bm25-response"}, "--negatives bm25-response"),
    ],
)
def test_a_setting_that_contradicts_the_paper_is_refused(
    protocol: str, settings: dict[str, Any], option: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=f"{option} contradicts --protocol {protocol}"):
        made(forum(tmp_path, "msdialog"), protocol, **settings)


def test_settings_that_agree_or_that_the_paper_leaves_open_are_kept() -> None:
    given = {"protocol": "icast", "num_candidates": 10, "labelled": 0.05, "min_context": 2, "limit": 3}
    settings = with_protocol(PrepareSettings.model_validate(given), "msdialog")
    assert given.items() <= settings.model_dump().items()
    assert with_protocol(PrepareSettings.model_validate({"protocol": "gpf", "context_turns": 8}), "").context_turns == 8


def test_the_complete_corpus_and_its_part_with_intents_are_read_together(tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.mkdir()
    forum(both, "msdialog", name="MSDialog-Complete.json", dialogues=range(20, 300))
    complete = json.loads((both / "MSDialog-Complete.json").read_text())
    with_intents = json.loads(forum(both, "msdialog", name="MSDialog-Intent.json", dialogues=range(20)).read_text())
    for number, dialogue in with_intents.items():
        turns = [{**turn, "tags": ""} for turn in dialogue["utterances"]]
        complete[f"9000{number}"] = dialogue | {"utterances": turns}
    (both / "MSDialog-Complete.json").write_text(json.dumps(complete))
    notes: list[str] = []
    pool_set = prepare(both, tmp_path / "pools", PrepareSettings(protocol="icast"), note=notes.append)
    assert pool_set.reader == "msdialog"
    assert sum(pool_set.num_pools.values()) == 225
    assert pool_set.intents_in == ("train",)
    assert "left out: 20 dialogues that another file has with intents" in notes


def test_dialogues_with_intents_leave_the_sources_test_split(tmp_path: Path) -> None:
    source = tmp_path / "mantis"
    source.mkdir()
    forum(source, "mantis", name="merged_dev.json", dialogues=range(20, 80))
    forum(source, "mantis", name="merged_test.json", dialogues=[*range(20), *range(80, 200)])
    pool_set, pools = made(source, "icast")
    assert {number_of(pool) for pool in pools["train"]} == {number for number in range(20) if accepted_turn(number)}
    assert pool_set.num_pools["validation"] + pool_set.num_pools["test"] == 135
    assert (pool_set.intents_in, pool_set.split_origin) == (("train",), "source")


def authors_folder(folder: Path) -> Path:
    """The ICAST authors' files: 15 pools of each part, with nine wrong answers."""
    for number, part in enumerate(("train", "unlabeled", "valid", "test")):
        where = folder / "authors" / part
        where.mkdir(parents=True)
        rows = range(20 * number, 20 * number + 15)
        tag = "" if part == "unlabeled" else "\tOQ" if part == "train" else "\t"
        lines = {
            "context": [f"{utterance(row, 0)}{tag}" for row in rows],
            "answer": [utterance(row, 1) for row in rows],
            "negative_sampling": ["\t".join(utterance(row + step, 3) for step in range(1, 10)) for row in rows],
        }
        for name, texts in lines.items():
            (where / f"{name}.tsv").write_text("\n".join(texts) + "\n")
    return folder / "authors"


def test_the_authors_pools_are_icasts_own(tmp_path: Path) -> None:
    pool_set, pools = made(authors_folder(tmp_path), "icast")
    assert pool_set.num_pools == {"train": 30, "validation": 15, "test": 15}
    assert (pool_set.answers, pool_set.negative_sampler, pool_set.split_origin) == ("accepted", "source", "source")
    assert {sentence.split()[-3:][0] for sentence in unmet(pool_set, PROTOCOLS["icast"])} <= {str(100)}
    labelled_first = sorted(pools["train"], key=lambda pool: pool.label_order)[:15]
    assert all(pool.context[0].intents for pool in labelled_first)


def mantis_tsv(folder: Path) -> Path:
    """Pools of eleven candidates, as in mantis_10."""
    (folder / "tsv").mkdir()
    for split in ("train", "dev", "test"):
        (folder / "tsv" / f"data_{split}_easy.tsv").write_text(
            "".join(
                f"{int(not step)}\t{utterance(row, 0)}\t{utterance(row, 1)}\t{utterance(row, 2)}\t"
                f"{utterance(row + step, 3)}\n"
                for row in range(12)
                for step in range(11)
            )
        )
    return folder / "tsv"


def udc(folder: Path) -> Path:
    (folder / "udc").mkdir()
    train = [f"{utterance(row, 0)} __eou__ __eot__ ,{utterance(row, 1)},1" for row in range(40)]
    ready = [",".join(utterance(row + step, 3) for step in range(11)) for row in range(50, 70)]
    (folder / "udc" / "train.csv").write_text("\n".join(["Context,Utterance,Label", *train]))
    header = ",".join(["Context", "Ground Truth Utterance", *(f"Distractor_{number}" for number in range(9))])
    for name in ("valid", "test"):
        (folder / "udc" / f"{name}.csv").write_text("\n".join([header, *ready]))
    return folder / "udc"


@pytest.mark.parametrize("protocol", ["gpf", "pg"])
@pytest.mark.parametrize(("corpus", "sampler"), [(mantis_tsv, "source"), (udc, "random")])
def test_candidates_that_a_corpus_ships_are_kept_up_to_ten(
    protocol: str, corpus: Callable[[Path], Path], sampler: str, tmp_path: Path
) -> None:
    pool_set, pools = made(corpus(tmp_path), protocol)
    assert (pool_set.num_candidates, pool_set.negative_sampler, pool_set.split_origin) == (10, sampler, "source")
    for pool in pools["test"]:
        row = int(pool.candidates[pool.label].split()[-2])
        expected = [utterance(row + step, 3) for step in range(10)]
        assert sorted(pool.candidates) == sorted(expected)
    assert all("too few" in sentence for sentence in unmet(pool_set, PROTOCOLS[protocol]))


META = {
    "version": 1, "name": "mine", "digest": "0", "source": "/data/my chats.jsonl", "source_digest": "0",
    "reader": "jsonl", "negative_sampler": "bm25-response", "num_candidates": 10, "context_turns": 4,
    "answers": "accepted", "intents_in": ["train"], "split_origin": "drawn", "seed": 7,
    "default_labelled_fraction": 0.01,
    "intents": ["OQ"], "num_pools": {"train": 900, "validation": 100, "test": 100}, "num_dialogues": {},
    "num_rejected": 0, "created_with": "icalib 0.1.0", "files": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "changes", "words"),
    [
        ("icast", {"negative_sampler": "neighbourhood"}, ["negatives: neighbourhood", "the paper: bm25-response"]),
        ("icast", {"num_candidates": 5}, ["candidates: 5", "the paper: 10"]),
        ("icast", {"intents": [], "intents_in": []}, ["intents: none"]),
        ("icast", {"intents_in": ["train", "test"]}, ["intents: also in test pools"]),
        ("icast", {"limit": 50}, ["at most 50 pools", "--limit"]),
        ("icast", {"num_several_right": {"test": 2}}, ["2 test pools", "several right"]),
        ("icast", {"num_pools": {"train": 9, "validation": 100, "test": 3}}, ["3 test pools", "too few"]),
        ("pg", {"reader": "mantis", "context_turns": 100}, ["BM25's negatives in training pools", "§4.4"]),
        ("gpf", {"negative_sampler": "random"}, ["4", "the protocol: 100", "not stated: ours"]),
    ],
)
def test_what_differs_is_said_in_a_sentence(protocol: str, changes: dict[str, Any], words: list[str]) -> None:
    (sentence,) = unmet(PoolSet.model_validate(META | changes), PROTOCOLS[protocol])
    assert [word for word in words if word not in sentence] == []
