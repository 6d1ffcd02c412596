"""Making pools that have no right candidate: `prepare --unanswerable`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.data.schema import ALSO_RIGHT, NONE_RIGHT, Split, right_indices
from icalib.data.spill import Spill
from icalib.data.splits import text_key

_MAX_DRAWS = 1000


class Removal:
    """Takes the right candidates out of some pools of a split, for other wrong ones.

    Which pools depends on their ids and the seed: those with the smallest draws, so that a smaller fraction is
    contained in a larger one. Only pools with a right candidate are drawn.

    Args:
        spill: the split's rows, in a file that is closed.
        split: its name.
        fraction: fraction of the pools with a right candidate that lose it, rounded to whole pools.
        seed: root seed.
    """

    def __init__(self, spill: Spill, split: Split, fraction: float, seed: int) -> None:
        self._spill, self._split, self._seed = spill, split, seed
        self._drawn = _drawn(spill, fraction, seed)

    def apply(self, number: int, row: dict[str, Any], further: str | None) -> dict[str, Any]:
        """Return the row in position `number`, without its right candidates if it was drawn.

        Args:
            number: index of the row in the spill.
            row: the row with all its candidates.
            further: the wrong candidate that replaces the only right one; None takes candidates of random pools of
                other dialogues.

        Raises:
            DataError: the split has too few other candidates.
        """
        if not self._drawn[number]:
            return row
        right = right_indices(row["label"], row[ALSO_RIGHT] or ())
        wrong = [text for index, text in enumerate(row["candidates"]) if index not in right]
        replacements = self._others(row, len(right)) if further is None else [further]
        return {**row, "candidates": [*wrong, *replacements], "label": NONE_RIGHT, ALSO_RIGHT: []}

    def _others(self, row: dict[str, Any], count: int) -> list[str]:
        found, taken = list[str](), {*map(text_key, row["candidates"])}
        for number in _random_rows(child_seed(self._seed, "replacement", row["pool_id"]), self._spill.num_rows):
            text = self._spill.response(number)
            (other,) = self._spill.rows(number, number + 1, ["dialog_id"])
            if other["dialog_id"] != row["dialog_id"] and text_key(text) not in taken:
                found.append(text)
                taken.add(text_key(text))
                if len(found) == count:
                    return found
        raise DataError(
            f"the {self._split} split has no candidate that could replace the right one of {row['pool_id']!r} "
            "(a different text, from another dialogue)",
            "Prepare more dialogues, or without --unanswerable.",
        )


def _drawn(spill: Spill, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows lose their right candidate, [num_rows]."""
    draw, has_right = array("Q"), array("b")
    for row in spill.rows(columns=["pool_id", "label"]):
        draw.append(child_seed(seed, "unanswerable", row["pool_id"]))
        has_right.append(row["label"] >= 0)
    eligible = np.flatnonzero(has_right)
    chosen = eligible[np.argsort(np.asarray(draw)[eligible], kind="stable")[: round(fraction * len(eligible))]]
    drawn = np.zeros(len(draw), dtype=bool)
    drawn[chosen] = True
    return drawn


def _random_rows(seed: int, num_rows: int) -> Iterator[int]:
    return iter(np.random.default_rng(seed).integers(0, num_rows, size=_MAX_DRAWS).tolist())
