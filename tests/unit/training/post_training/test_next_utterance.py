from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.dialogues import number_store

from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker
from icalib.training.post_training.next_utterance import NextUtterance


def curriculum(store: TokenStore, ranker: Ranker, **settings: object) -> NextUtterance:
    config = NextUtterance.Config.model_validate(settings)
    return config.build(store=store, rows=range(len(store)), layout=ranker.layout)


def examples(made: NextUtterance, epoch: int = 0) -> list[object]:
    return [example for batch in made.batches(epoch) for example in batch]


def words(store: TokenStore, row: int, place: int) -> bytes:
    return store.pool(row).context[place].tobytes()


def test_half_of_the_next_utterances_are_wrong_and_each_wrong_one_differs(store: TokenStore, ranker: Ranker) -> None:
    drawn = examples(curriculum(store, ranker))
    right = [e for e in drawn if e.other is None]
    wrong = [e for e in drawn if e.other is not None]
    assert len(right) == len(wrong) > 10
    assert {e.window for e in right} == {e.window for e in wrong}
    assert all(words(store, *e.other) != words(store, *e.window) for e in wrong)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_wrong_utterances_come_from_the_same_dialogue_as_often_as_asked(
    store: TokenStore, ranker: Ranker, share: float
) -> None:
    wrong = [e for e in examples(curriculum(store, ranker, wrong_from_same_dialogue=share)) if e.other is not None]
    deep = [e for e in wrong if e.window.position > 1]  # the first reply has no earlier utterance but its own question
    same = [store.pool(e.other.row).dialog_id == store.pool(e.window.row).dialog_id for e in deep]
    assert len(deep) > 5
    assert np.mean(same) == share
    if share:
        assert all(e.other.position < e.window.position - 1 for e in deep)


def test_windows_are_drawn_anew_each_epoch_up_to_a_number(store: TokenStore, ranker: Ranker) -> None:
    made = curriculum(store, ranker, max_windows=8)
    first, second, again = examples(made, 0), examples(made, 1), examples(made, 0)
    assert len(first) == len(second) == 16
    assert first == again
    assert {e.window for e in first} != {e.window for e in second}


def test_one_other_target_behind_many_of_the_same_is_enough(tmp_path: Path, ranker: Ranker) -> None:
    dialogues = {str(number): [str(number), "50"] for number in range(100, 150)}
    made = curriculum(number_store(tmp_path, {**dialogues, "last": ["10", "11"]}), ranker, max_windows=None)
    assert len(examples(made)) == 2 * 51


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "dialogues",
    [
        {"a": ["10", "11", "12"]},  # one dialogue alone
        {"a": ["10", "11", "12", "13", "14"], "b": ["10", "11"]},  # the others say what this one says
        {"a": ["10", "11", "12", "10", "11"], "b": ["20", "21"]},  # a dialogue that repeats itself
    ],
)
def test_small_and_repetitive_corpora_still_get_wrong_utterances(
    tmp_path: Path, ranker: Ranker, dialogues: dict[str, list[str]]
) -> None:
    store = number_store(tmp_path, dialogues)
    made = curriculum(store, ranker, wrong_from_same_dialogue=0.5)
    for epoch in range(5):
        wrong = [e for e in examples(made, epoch) if e.other is not None]
        assert wrong
        assert all(words(store, *e.other) != words(store, *e.window) for e in wrong)


@pytest.mark.parametrize("texts", [["10"], ["10", "98"]])
def test_contexts_without_two_targets_are_an_error_with_a_cure(
    tmp_path: Path, ranker: Ranker, texts: list[str]
) -> None:
    with pytest.raises(SettingError, match="post_training=null"):
        curriculum(number_store(tmp_path, {"a": texts, "b": texts}), ranker)
