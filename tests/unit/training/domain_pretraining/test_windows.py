from __future__ import annotations

from pathlib import Path

import pytest
from helpers.dialogues import number_store

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker
from icalib.training.domain_pretraining.utterance_order import UtteranceOrder
from icalib.training.domain_pretraining.utterance_relevance import UtteranceRelevance
from icalib.training.domain_pretraining.windows import Windows


def found(store: TokenStore, width: int | None) -> list[list[list[int]]]:
    """Context and target of each window."""
    windows = Windows(store, range(len(store)), width)
    return [[ids.tolist() for ids in (*windows.context(window), windows.target(window))] for window in windows.windows]


def test_windows_slide_over_long_dialogues_and_short_ones_are_one_window(tmp_path: Path) -> None:
    store = number_store(
        tmp_path,
        {
            "long/1": ["10", "11", "12"],
            "long/2": ["10", "11", "12", "13"],
            "long/3": ["12", "13", "14", "15"],
            "short": ["20", "21", "22"],
            "two": ["30", "31"],
        },
    )
    assert found(store, 3) == [[[10], [11], [12], [13]], [[12], [13], [14], [15]], [[20], [21], [22]], [[30], [31]]]
    assert found(store, 2)[:3] == [[[10], [11], [12]], [[11], [12], [13]], [[12], [13], [14]]]


def test_candidates_are_neither_targets_nor_spoken_in_their_own_dialogue(tmp_path: Path) -> None:
    store = number_store(tmp_path, {"a/1": ["10", "98", "12"], "a/2": ["12", "99", "14"], "b": ["10", "11"]})
    windows = Windows(store, range(len(store)), 3)
    assert [windows.target(window).tolist() for window in windows.windows] == [[12], [14], [11]]
    spoken = windows.utterances()
    assert [windows.target(place).tolist() for place in spoken["a"]] == [[10], [12], [14]]


def test_texts_with_the_same_ids_are_one_text(tmp_path: Path) -> None:
    store = number_store(tmp_path, {"a": ["10", "11", "12"], "b": ["20", "011", "12"], "a/2": ["010", "11", "13"]})
    windows = Windows(store, range(len(store)))
    shown = [[ids.tolist() for ids in (*windows.context(one), windows.target(one))] for one in windows.windows]
    assert shown == [[[10], [11]], [[10], [11], [12]], [[20], [11]], [[20], [11], [12]], [[10], [11], [13]]]
    assert [windows.target(one).tolist() for one in windows.utterances()["a"]] == [[10], [11], [12], [13]]
    assert not windows.can_replace_target(0, windows.windows[2])
    assert windows.can_replace_target(0, windows.windows[1])


def test_epochs_read_no_whole_pools_and_know_lengths_before_encoding(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool has its candidates decoded, which takes most of the time."""
    long = " ".join(["7"] * 40)
    contexts = [["10 11", long, "12"], ["14", "15 16", "17", "18", "19"], [long, long, "20", long]]
    store = number_store(tmp_path, {str(number): texts for number, texts in enumerate(contexts)})
    monkeypatch.delattr(TokenStore, "pool")
    given = {"store": store, "rows": range(len(store)), "layout": ranker.layout}
    assert UtteranceOrder.Config().build(**given).batches(0)
    made = UtteranceRelevance.Config().build(**given)
    for batch in (batch for epoch in range(5) for batch in made.batches(epoch)):
        assert [len(ids) for ids, _ in made.collate(batch).encoded] == [example.length for example in batch]
