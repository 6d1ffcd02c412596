from __future__ import annotations

from pathlib import Path

from helpers.dialogues import number_store

from icalib.data.encoding import TokenStore
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
    spoken = windows.utterances(range(len(store)))
    assert [windows.target(place).tolist() for place in spoken["a"]] == [[10], [12], [14]]
