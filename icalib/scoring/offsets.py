"""Offsets: the logits of a ranker's other parts, which the cross-encoder's training adds to its own.

On labelled pools they are out of fold: values of parts that were trained without the pool. In-sample values would leave
nothing to learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icalib.core.parquet import read_parquet
from icalib.data.encoding import Intents, Lists, TokenPool
from icalib.scoring.column import View

VIEWS: tuple[View, ...] = ("plain", "intent")
OFFSET_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("plain", pa.list_(pa.float64())),
        ("intent", pa.list_(pa.float64())),
        ("intents", pa.list_(pa.list_(pa.int32()))),
    ]
)
"""One row per pool: a logit for each candidate in each view, and the predicted intents of each utterance."""


@dataclass(frozen=True)
class Offsets:
    """Logits of the pairs of P pools in each view, and predicted intents; None where no part predicts them."""

    row_P: npt.NDArray[np.int64]
    """Rows of the pools, ascending."""
    of_view: Mapping[View, Lists]
    """A list of logits [C] of each pool."""
    intents: pa.ChunkedArray | None = None
    """Those of each pool's utterances."""

    def of_pools(self, pools: Sequence[TokenPool], view: View) -> npt.NDArray[np.float64]:
        """Return the offsets of all pairs of some pools, [N]."""
        return np.concatenate([np.zeros(0), *(self.of_view[view].at(self._place(pool.row)) for pool in pools)])

    def of_pair(self, row: int, candidate: int, view: View) -> float:
        """Return the offset of a pair."""
        return float(self.of_view[view].at(self._place(row))[candidate])

    def of_intents(self, pools: Sequence[TokenPool]) -> list[Intents] | None:
        """Return the predicted intents of some pools' utterances."""
        if self.intents is None:
            return None
        return [self.intents[self._place(pool.row)].as_py() for pool in pools]

    def _place(self, row: int) -> int:
        place = int(np.searchsorted(self.row_P, row))
        if place == len(self.row_P) or self.row_P[place] != row:
            raise KeyError(f"the pool in row {row} has no offsets")
        return place

    @classmethod
    def load(cls, path: Path) -> Offsets:
        """Read OFFSET_SCHEMA."""
        table = read_parquet(path).sort_by("row")
        intents = table["intents"]
        of_view: dict[View, Lists] = {view: Lists.of(table[view]) for view in VIEWS}
        return cls(table["row"].to_numpy(), of_view, None if intents.null_count else intents)
