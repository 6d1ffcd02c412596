from __future__ import annotations

from typing import Any

import numpy as np

from icalib.data.schema import NONE_RIGHT, UNKNOWN_LABEL
from icalib.data.selection import Selection
from icalib.training.pairs import validation_rows

SELECTION = Selection(labelled_fraction=1.0)


class Store:
    """Four pools: two with a right candidate, one without, one of unknown label."""

    def column(self, name: str) -> Any:
        return np.array([2, UNKNOWN_LABEL, NONE_RIGHT, 0]) if name == "label" else np.arange(4)


def test_pools_without_a_right_candidate_are_labelled() -> None:
    store: Any = Store()
    assert validation_rows(store, SELECTION) == [0, 2, 3]
