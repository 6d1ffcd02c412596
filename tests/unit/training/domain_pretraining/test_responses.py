"""What contrastive domain pre-training may read. Every utterance is a number of its own, so each can be traced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.pool_folders import made_pool

from icalib.core.errors import SettingError
from icalib.data.encoding import Budget, TokenStore, write_tokens
from icalib.data.logs import LogStore, write_log_tokens, write_logs
from icalib.data.schema import Dialogue, Pool, Split
from icalib.data.sources.records import Source
from icalib.training.domain_pretraining.responses import Corpus, Responses
from icalib.training.domain_pretraining.windows import Windows

TURNS = 8
SPLITS: dict[Split, range] = {"train": range(6), "validation": range(6, 8), "test": range(8, 10)}


def word(dialogue: int, turn: int) -> int:
    return 100 + 10 * dialogue + turn


def tokenize(texts: list[str]) -> list[list[int]]:
    return [[int(part) for part in text.split()] for text in texts]


def pools(split: Split, *, ready_made: bool, tail: str = "") -> Iterator[Pool]:
    """Two overlapping pools of each dialogue: the answers are its fifth and its last utterance.

    Ready-made pools have no dialogue in common, as in the Ubuntu corpus.
    """
    for dialogue in SPLITS[split]:
        for answer in (4, TURNS - 1):
            name = f"{dialogue}/{answer}"
            other = word((dialogue + 1) % 6, TURNS - 1)
            own, texts = word(dialogue, answer), [f"{word(dialogue, turn)}{tail}" for turn in range(answer)]
            given = {"dialog_id": name if ready_made else str(dialogue), "split": split}
            yield made_pool([f"{other}{tail}", f"{own}{tail}"], *texts, name=name, label=1, **given)


def store(folder: Path, split: Split, budget: Budget, **made: Any) -> TokenStore:
    path = folder / f"{split}.arrow"
    write_tokens(path, [list(pools(split, **made))], tokenize, (), budget)
    return TokenStore(path)


def log_store(folder: Path, dialogues: Iterable[int]) -> LogStore:
    logs = [
        Dialogue.model_validate(
            {
                "dialog_id": f"log {dialogue}",
                "utterances": [{"speaker": "user", "text": str(word(dialogue, turn))} for turn in range(TURNS)],
            }
        )
        for dialogue in dialogues
    ]
    source = Source(files=(folder,), dialogues=lambda on_reject: iter(logs))
    write_logs(source, folder / "logs.parquet", None, lambda *progress: None)
    assert list(write_log_tokens(folder / "logs.arrow", folder / "logs.parquet", tokenize, Budget())) == [len(logs)]
    return LogStore(folder / "logs.arrow")


def corpus(
    folder: Path, logs: Iterable[int] = (), *, ready_made: bool = True, tail: str = "", budget: Budget | None = None
) -> Corpus:
    train, *held_out = (store(folder, split, budget or Budget(), ready_made=ready_made, tail=tail) for split in SPLITS)
    chosen = list(logs)
    return Corpus(train, range(len(train)), tuple(held_out), log_store(folder, chosen) if chosen else None)


def targets(responses: Responses) -> set[int]:
    return {int(responses.target(index)[0]) for index in range(len(responses))}


def answers(split: Split) -> set[int]:
    return {word(dialogue, turn) for dialogue in SPLITS[split] for turn in (4, TURNS - 1)}


def test_answers_longer_than_the_budget_are_known_by_their_whole_text(tmp_path: Path) -> None:
    made = corpus(tmp_path, tail=" 7" * 30, budget=Budget(max_candidate_tokens=5, max_context_tokens=20))
    assert len(Responses(made, "windows", 4)) == 5 * len(SPLITS["train"])


@pytest.mark.parametrize("ready_made", [True, False])
def test_no_answer_of_a_pool_is_a_target(tmp_path: Path, ready_made: bool) -> None:
    found = targets(Responses(corpus(tmp_path, ready_made=ready_made), "windows", 4))
    # the fifth utterance is in the context of the second pool, too
    assert found == {word(dialogue, turn) for dialogue in SPLITS["train"] for turn in (1, 2, 3, 5, 6)}


@pytest.mark.parametrize("rule", ["windows", "logs", "replies"])
def test_logs_that_repeat_the_corpus_give_no_answer_away(tmp_path: Path, rule: str) -> None:
    everything = corpus(tmp_path, [*range(10), 20, 21])
    found = targets(Responses(everything, rule, 4))  # type: ignore[arg-type]
    held_out = {
        word(dialogue, turn) for split in ("validation", "test") for dialogue in SPLITS[split] for turn in range(8)
    }  # type: ignore[index]
    assert not found & held_out
    assert (answers("train") <= found) == (rule == "replies")
    assert rule == "replies" or not found & answers("train")
    new = {word(dialogue, turn) for dialogue in (20, 21) for turn in range(1, TURNS)}
    assert new & found == (set() if rule == "windows" else new)


def test_labels_of_pools_change_nothing_unless_replies_are_targets(tmp_path: Path) -> None:
    made = corpus(tmp_path)
    wrong = tmp_path / "other.arrow"
    turned = [pool.model_copy(update={"label": 0}) for pool in pools("train", ready_made=True)]
    write_tokens(wrong, [turned], tokenize, (), Budget())
    other = made._replace(store=TokenStore(wrong))
    assert targets(Responses(made, "windows", 4)) == targets(Responses(other, "windows", 4))
    assert targets(Responses(made, "replies", 4)) != targets(Responses(other, "replies", 4))


def test_contexts_are_the_last_turns_before_a_target(tmp_path: Path) -> None:
    responses = Responses(corpus(tmp_path, [20]), "logs", 3)
    seen = 0
    for index in range(len(responses)):
        target = int(responses.target(index)[0])
        dialogue, turn = divmod(target - 100, 10)
        context = [int(ids[0]) for ids in responses.context(index)]
        assert context == [word(dialogue, earlier) for earlier in range(max(0, turn - 3), turn)]
        seen += dialogue == 20
    assert seen == TURNS - 1


def test_pools_that_are_not_used_are_left_out_and_nothing_to_predict_is_told(tmp_path: Path) -> None:
    made = corpus(tmp_path)
    found = targets(Responses(made._replace(rows=[0, 1]), "windows", 4))
    assert found == {word(0, turn) for turn in (1, 2, 3, 5, 6)}
    short = [pool.model_copy(update={"context": pool.context[:1]}) for pool in pools("train", ready_made=True)]
    write_tokens(tmp_path / "short.arrow", [short], tokenize, (), Budget())
    with pytest.raises(SettingError, match="no two different utterances"):
        Responses(Corpus(TokenStore(tmp_path / "short.arrow"), range(len(short))), "windows", 4)


@pytest.mark.parametrize(("ready_made", "width"), [(True, None), (True, 3), (False, None)])
def test_no_answer_of_a_pool_is_a_target_of_the_other_tasks(
    tmp_path: Path, ready_made: bool, width: int | None
) -> None:
    made = corpus(tmp_path, ready_made=ready_made)
    windows = Windows(made.store, made.rows, width)
    utterances = [window for one in windows.utterances().values() for window in one]
    for shown in (windows.windows, utterances):
        found = {int(windows.target(window)[0]) for window in shown}
        assert found
        assert not found & answers("train")
