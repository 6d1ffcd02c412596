from __future__ import annotations

import numpy as np
import pytest

from icalib.data.folds import Fold, fold_of


class Dialogues:
    """A store that has nothing but the dialogue of each pool."""

    def __init__(self, names: str) -> None:
        self._names = np.array(list(names), object)

    def column(self, name: str) -> np.ndarray:
        assert name == "dialog_id"
        return self._names


@pytest.mark.parametrize("number", [2, 3])
def test_folds_are_disjoint_cover_all_and_keep_a_dialogue_together(number: int) -> None:
    store, rows = Dialogues("ddaaabccddeefag"), np.array([14, 0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13])
    parts = [Fold(index=index, number=number).rows(store, rows) for index in range(number)]  # type: ignore[arg-type]
    assert sorted(np.concatenate(parts)) == sorted(rows)
    dialogues = [set(store.column("dialog_id")[part]) for part in parts]
    assert sum(map(len, dialogues)) == len(set.union(*dialogues)) == 7
    assert max(map(len, dialogues)) - min(map(len, dialogues)) <= 1
    for index, part in enumerate(parts):
        others = Fold(index=index, number=number).others(store, rows)  # type: ignore[arg-type]
        assert sorted([*part, *others]) == sorted(rows)


def test_dialogues_are_dealt_out_in_the_order_of_the_rows() -> None:
    rows = np.array([5, 0, 3, 4, 1])
    assert fold_of(Dialogues("zyxxay"), rows, 2).tolist() == [0, 1, 0, 1, 0]  # type: ignore[arg-type]
