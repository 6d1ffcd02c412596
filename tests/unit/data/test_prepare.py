from __future__ import annotations

import gc
import json
import os
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.damage import DAMAGES, Damage
from helpers.pool_folders import pools_digest, read_pools
from helpers.raw_corpora import write_udc
from helpers.stores import Machines

from icalib.core.component import validated
from icalib.core.errors import DataError, SettingError
from icalib.core.storage import names_in
from icalib.data.contexts import context_responses
from icalib.data.pools import as_pools, read_pool_set, read_rows
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import SPLITS
from icalib.data.simulate import simulate
from icalib.data.sources.readers import open_source


def corpus(path: Path, num_dialogues: int, with_split: bool = True, num_words: int = 8) -> Path:
    """Dialogues of six turns with two responses; one in two has intents."""
    rng = np.random.default_rng(3)
    with path.open("w") as file:
        for number in range(num_dialogues):
            texts = [" ".join(f"w{n}" for n in rng.integers(0, 400, num_words)) for _ in range(6)]
            intents = ["FD"] if number % 2 else []
            record: dict[str, Any] = {
                "dialog_id": f"d{number}",
                "utterances": [
                    {"speaker": "ua"[turn % 2] + ("ser" if turn % 2 == 0 else "gent"), "text": text, "intents": intents}
                    for turn, text in enumerate(texts)
                ],
            }
            if with_split:
                record["split"] = ("train", "validation", "test")[0 if number % 10 < 6 else 1 + number % 2]
            file.write(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("prepared")
    source = corpus(root / "d.jsonl", 400)
    prepare(source, root / "pools", PrepareSettings(num_candidates=5))
    return source, root / "pools"


def test_pools_are_complete_and_correct(prepared: tuple[Path, Path]) -> None:
    source, folder = prepared
    dialogues = {d["dialog_id"]: d for d in map(json.loads, source.read_text().splitlines())}
    pool_set = read_pool_set(folder)
    assert pool_set.num_pools == {"train": 480, "validation": 160, "test": 160}
    assert pool_set.num_dialogues == {"train": 240, "validation": 80, "test": 80}
    assert pool_set.intents == ("FD",)
    assert pool_set.default_labelled_fraction == 0.5
    assert (pool_set.negative_sampler, pool_set.num_candidates) == ("neighbourhood", 5)
    for split in SPLITS:
        pools = read_pools(folder, split)
        texts = {u["text"] for d in dialogues.values() if d["split"] == split for u in d["utterances"]}
        for pool in pools:
            turn = int(pool.pool_id.split("#")[1])
            utterances = dialogues[pool.dialog_id]["utterances"]
            assert pool.candidates[pool.label] == utterances[turn]["text"]
            assert [u.text for u in pool.context] == [u["text"] for u in utterances[max(0, turn - 4) : turn]]
            assert len(set(pool.candidates)) == 5
            assert texts.issuperset(pool.candidates)
            own = {u["text"] for u in utterances}
            assert len(own.intersection(pool.candidates)) == 1


def test_ready_pools_are_cut_to_the_candidates_that_are_asked_for(tmp_path: Path) -> None:
    folder = write_udc(tmp_path)
    for number in (None, 4):
        given = {} if number is None else {"num_candidates": number}
        prepare(folder, tmp_path / f"{number}", PrepareSettings(format="udc", **given))
        pools = read_pools(tmp_path / f"{number}")
        assert {len(pool.candidates) for pool in pools} == {number or 10}
        assert all(0 <= pool.label < len(pool.candidates) for pool in pools)
    with pytest.raises(SettingError, match=r"other inputs \(cut_to\)"):  # they may have more than the default
        prepare(folder, tmp_path / "None", PrepareSettings(format="udc", num_candidates=10))


def test_rows_come_in_the_order_asked(prepared: tuple[Path, Path]) -> None:
    folder = prepared[1]
    pools = read_pools(folder, "train")
    rows = [479, 3, 300, 3]
    assert list(as_pools(read_rows(folder, "train", rows))) == [pools[row] for row in rows]
    assert read_rows(folder, "train", [5], columns=["label"]).column_names == ["label"]


def test_the_same_seed_gives_the_same_pools_with_any_parallel_map(prepared: tuple[Path, Path], tmp_path: Path) -> None:
    source, folder = prepared

    def threads(function: Any, blocks: Any) -> Iterator[Any]:
        with ThreadPoolExecutor(3) as pool:
            yield from pool.map(function, blocks)

    again = prepare(source, tmp_path / "again", PrepareSettings(num_candidates=5), parallel_map=threads)
    other = prepare(source, tmp_path / "other", PrepareSettings(num_candidates=5, seed=8))
    assert again.digest == read_pool_set(folder).digest == pools_digest(tmp_path / "again")
    assert other.digest != again.digest


def test_the_same_inputs_need_no_action_and_others_need_fresh(tmp_path: Path) -> None:
    source, out = corpus(tmp_path / "d.jsonl", 60), tmp_path / "pools"
    first = prepare(source, out, PrepareSettings(num_candidates=3))
    stamp = (out / "train.parquet").stat().st_mtime_ns
    notes: list[str] = []
    assert prepare(source, out, PrepareSettings(num_candidates=3), note=notes.append) == first
    assert (out / "train.parquet").stat().st_mtime_ns == stamp
    assert "no action needed" in notes[0]
    with pytest.raises(SettingError, match=r"\(num_candidates\).*--fresh"):
        prepare(source, out, PrepareSettings(num_candidates=4))
    assert prepare(source, out, PrepareSettings(num_candidates=4), fresh=True).num_candidates == 4


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("x")
    with pytest.raises(SettingError, match="not a pool folder"):
        prepare(corpus(tmp_path / "d.jsonl", 60), tmp_path / "out", fresh=True)
    assert (tmp_path / "out" / "thesis.tex").is_file()


def test_bad_records_stop_or_are_set_aside(tmp_path: Path) -> None:
    source = corpus(tmp_path / "d.jsonl", 60)
    source.write_text(source.read_text() + '{"dialog_id": "d0", "utterances": []}\nnot json\n')
    out = tmp_path / "pools"
    with pytest.raises(DataError, match="line 61"):
        prepare(source, out, PrepareSettings(num_candidates=3))
    assert [path.name for path in tmp_path.iterdir()] == ["d.jsonl"]
    notes: list[str] = []
    assert prepare(source, out, PrepareSettings(num_candidates=3, skip_bad=True), note=notes.append).num_rejected == 2
    rejected = [json.loads(line) for line in (tmp_path / "pools.rejected.jsonl").read_text().splitlines()]
    assert [(r["path"], r["line"], r["field"], r["raw"]) for r in rejected] == [
        (str(source), 61, "utterances", '{"dialog_id": "d0", "utterances": []}'),
        (str(source), 62, "", "not json"),
    ]
    assert "2 records were left out" in notes[0]


def prepare_meanwhile(source: Path, out: Path, num_candidates: int, done: list[str]) -> Callable[..., None]:
    """What another process does when the first one reports progress; `done` receives its digest."""

    def progress(*_: object) -> None:
        if not done:
            done.append(prepare(source, out, PrepareSettings(num_candidates=num_candidates)).digest)

    return progress


def test_two_processes_may_prepare_the_same_folder(tmp_path: Path) -> None:
    source, out, done = corpus(tmp_path / "d.jsonl", 60), tmp_path / "pools", list[str]()
    progress = prepare_meanwhile(source, out, 3, done)
    outer = prepare(source, out, PrepareSettings(num_candidates=3), progress=progress)
    assert done == [outer.digest] == [read_pool_set(out).digest]
    assert {path.name for path in tmp_path.iterdir()} == {"d.jsonl", "pools"}


def test_of_two_processes_that_prepare_other_pools_the_slower_one_is_refused(tmp_path: Path) -> None:
    source, out, done = corpus(tmp_path / "d.jsonl", 60), tmp_path / "pools", list[str]()
    progress = prepare_meanwhile(source, out, 4, done)
    with pytest.raises(SettingError, match=r"prepared from other inputs \(num_candidates\)"):
        prepare(source, out, PrepareSettings(num_candidates=3), progress=progress)
    assert done == [read_pool_set(out).digest]
    assert {path.name for path in tmp_path.iterdir()} == {"d.jsonl", "pools"}


def test_too_few_responses_and_no_responses(tmp_path: Path) -> None:
    source = corpus(tmp_path / "d.jsonl", 10)
    with pytest.raises(DataError, match="the train split has 12 responses, fewer than the 20 candidates"):
        prepare(source, tmp_path / "a", PrepareSettings(num_candidates=20))
    lone = tmp_path / "lone.jsonl"
    lone.write_text('{"dialog_id": "x", "utterances": [{"speaker": "user", "text": "hi"}]}\n')
    with pytest.raises(DataError, match="no pool came out"):
        prepare(lone, tmp_path / "b")
    lone.write_text(lone.read_text() + '{"utterances": [{"speaker": "wizzy", "text": "hi"}]}\n')
    with pytest.raises(
        DataError, match=r"no pool came out of it \(left out: 1 records that are not valid\).*--preview"
    ):
        prepare(lone, tmp_path / "b", PrepareSettings(skip_bad=True))
    assert {path.name for path in tmp_path.glob("b*")} == {"b.rejected.jsonl"}  # which says why


def with_splits(source: Path, *splits: str) -> Path:
    """Keep only the dialogues of some splits."""
    lines = [line for line in source.read_text().splitlines() if json.loads(line)["split"] in splits]
    source.write_text("\n".join(lines))
    return source


@pytest.mark.parametrize("missing", [("validation",), ("test",), ("validation", "test")])
def test_missing_splits_are_taken_from_training_dialogues(tmp_path: Path, missing: tuple[str, ...]) -> None:
    kept = [split for split in SPLITS if split not in missing]
    source = with_splits(corpus(tmp_path / "d.jsonl", 200), *kept)
    notes: list[str] = []
    made = [
        prepare(source, tmp_path / name, PrepareSettings(num_candidates=3), note=notes.append) for name in ("a", "b")
    ]
    assert made[0].digest == made[1].digest
    pools = {split: read_pools(tmp_path / "a", split) for split in SPLITS}
    dialogues = {split: {pool.dialog_id for pool in pools[split]} for split in SPLITS}
    assert not dialogues["train"] & dialogues["validation"] | dialogues["train"] & dialogues["test"]
    assert {split: len(dialogues[split]) for split in missing} == dict.fromkeys(missing, 12)  # a tenth of 120
    assert len(dialogues["train"]) == 120 - 12 * len(missing)
    assert all(len(set(pool.candidates)) == 3 for split in SPLITS for pool in pools[split])
    assert len({pool.label_order for pool in pools["train"]} - {-1}) == len(pools["train"])
    assert [note for note in notes if "no test pools" in note or "no validation pools" in note] == 2 * [
        f"the source has no {split} pools: 24 pools of 12 training dialogues are used for it (drawn with seed 7)"
        for split in missing
    ]
    assert read_pool_set(tmp_path / "a").num_dialogues["train"] == len(dialogues["train"])


def test_pools_of_another_version_are_refused(prepared: tuple[Path, Path], tmp_path: Path) -> None:
    metadata = json.loads((prepared[1] / "pools.json").read_text())
    (tmp_path / "pools.json").write_text(json.dumps({**metadata, "version": 99}))
    with pytest.raises(DataError, match=r"version 99 .* reads version 1"):
        read_pool_set(tmp_path)


@pytest.mark.parametrize("name", ["test.parquet", "pools.json"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_pools_are_refused_by_file(
    prepared: tuple[Path, Path], tmp_path: Path, name: str, damage: Damage
) -> None:
    folder = tmp_path / "pools"
    shutil.copytree(prepared[1], folder)
    read_pool_set(folder)
    damage(folder / name)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        read_pool_set(folder)


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icalib.data.mining.BATCH_ROWS", 32)
    monkeypatch.setattr("icalib.data.pool_folder.ROW_GROUP", 32)
    monkeypatch.setattr("icalib.data.mining.MINING_BLOCK", 100)

    def peak(num_dialogues: int) -> int:
        # pydantic keeps up to 16 384 strings of at most 63 characters; these are longer
        source = corpus(tmp_path / f"{num_dialogues}.jsonl", num_dialogues, num_words=40)
        thresholds = gc.get_threshold()
        gc.set_threshold(100)  # else the peak has garbage, more or less of it in each version of Python
        tracemalloc.start()
        try:
            prepare(source, tmp_path / str(num_dialogues), PrepareSettings(num_candidates=3))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            gc.set_threshold(*thresholds)

    prepare(corpus(tmp_path / "warm.jsonl", 60), tmp_path / "warm", PrepareSettings(num_candidates=3))
    small, large = peak(75), peak(225)  # one and three blocks of 90 training responses
    assert (large - small) / 150 < 700  # bytes a dialogue: its id, and keys of its pools, but no text


def real_data() -> Path:
    name = "ubuntu_molweni.jsonl.gz"
    here = Path(__file__).resolve().parents[3]
    return Path(os.environ.get("ICALIB_DATA", here.parent / "shared" / "data")) / name


@pytest.mark.skipif(not real_data().is_file(), reason="the real dialogues are not here")
def test_real_dialogues_give_the_published_number_of_pairs() -> None:
    pairs, intents = Counter[str | None](), set[str]()
    for dialogue in open_source(real_data()).dialogues(None):
        pairs[dialogue.split] += len(list(context_responses(dialogue)))
        intents.update(intent for utterance in dialogue.utterances for intent in utterance.intents)
    assert pairs == {"train": 13957, "validation": 934, "test": 856}
    assert len(intents) == 18


def test_logs_are_kept_outside_the_pools_and_decide_nothing_in_them(
    prepared: tuple[Path, Path], tmp_path: Path
) -> None:
    source, folder = prepared
    logs = corpus(tmp_path / "logs.jsonl", 30, with_split=False)
    settings, seen = PrepareSettings(num_candidates=5), list[str]()
    pool_set = prepare(source, tmp_path / "pools", settings, logs=logs, progress=lambda stage, *_: seen.append(stage))
    assert pool_set.num_logs == 30
    assert pool_set.digest == read_pool_set(folder).digest
    assert "logs" in seen
    kept = pq.read_table(tmp_path / "pools" / "logs.parquet").to_pylist()
    assert [row["dialog_id"] for row in kept] == [f"d{number}" for number in range(30)]
    assert len(kept[0]["utterances"]) == 6
    notes: list[str] = []
    assert prepare(source, tmp_path / "pools", settings, logs=logs, note=notes.append) == pool_set
    assert "no action needed" in notes[0]
    with pytest.raises(SettingError, match=r"other inputs \(logs_digest\)"):
        prepare(source, tmp_path / "pools", settings)


def test_an_edited_sampler_has_other_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "our_sampler.py"
    module.write_text("from icalib.data.negatives import random as ours\n")
    source, settings = corpus(tmp_path / "d.jsonl", 60), PrepareSettings(negative_sampler="our_sampler:ours")
    notes: list[str] = []
    pool_set = prepare(source, tmp_path / "pools", settings)
    assert prepare(source, tmp_path / "pools", settings, note=notes.append) == pool_set
    assert "no action needed" in notes[-1]
    module.write_text("from icalib.data.negatives import random as ours  # another\n")
    with pytest.raises(SettingError, match=r"other inputs \(negative_sampler_digest\)"):
        prepare(source, tmp_path / "pools", settings)


def test_logs_may_have_another_format_and_options_have_a_meaning(tmp_path: Path) -> None:
    source, logs = corpus(tmp_path / "d.jsonl", 60), tmp_path / "logs.csv"
    logs.write_text("chat,who am i,text\n1,ann,hello\n1,bob,hi\n2,bob,\n")
    options = {"speakers": {"ann": "user", "bob": "agent"}, "columns": {"sender": "who am i"}}
    settings = validated(PrepareSettings, {"num_candidates": 2, "negative_sampler": "random", **options})
    with pytest.raises(SettingError, match=r"--columns has no meaning for the format jsonl.*ranking, table take it"):
        prepare(source, tmp_path / "a", settings)
    notes: list[str] = []
    assert prepare(source, tmp_path / "b", settings, logs=logs, note=notes.append).num_logs == 1
    assert "logs: left out: 1 conversations without a text of user or agent" in notes


@pytest.fixture
def source(tmp_path: Path) -> Path:
    simulate(tmp_path / "dialogues.jsonl", num_dialogues=40, seed=1)
    return tmp_path / "dialogues.jsonl"


def test_mining_tasks_may_run_on_other_machines(machines: Machines, source: Path, tmp_path: Path) -> None:
    def on_another(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
        machines.on("b", "")
        found = [function(block) for block in blocks]
        machines.on("a", "")
        return found

    out = machines.on("a", "pools")
    there = prepare(source, out, PrepareSettings(num_candidates=3), parallel_map=on_another)
    assert there.digest == prepare(source, tmp_path / "here", PrepareSettings(num_candidates=3)).digest
    assert names_in(machines.on("a", "")) == {"pools"}  # no index is left
    assert read_pool_set(machines.on("c", "pools")) == there
    assert names_in(out) == {"pools.json", "train.parquet", "validation.parquet", "test.parquet"}


def test_mining_is_announced_before_its_first_block(tmp_path: Path) -> None:
    simulate(tmp_path / "desk.jsonl", num_dialogues=60)
    begun: list[str] = []

    def elsewhere(function: Callable[[Any], Any], blocks: Sequence[Any]) -> Iterator[Any]:
        assert begun[-1].startswith("mine ")
        return map(function, blocks)

    settings = PrepareSettings(num_candidates=3)
    told = lambda stage, done, total: begun.append(stage)  # noqa: E731
    prepare(tmp_path / "desk.jsonl", tmp_path / "pools", settings, parallel_map=elsewhere, progress=told)
    assert begun[-1] == "write test"
