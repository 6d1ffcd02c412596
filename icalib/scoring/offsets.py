"""Offsets: the logits of a ranker's other parts, which the cross-encoder's training adds to its own.

On labelled pools they are out of fold: values of parts that were trained without the pool. In-sample values would leave
nothing to learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.files import atomic_write
from icalib.core.parquet import read_parquet
from icalib.data.encoding import Intents, TokenPool
from icalib.scoring.column import View

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
    """Logits by the pool's row and view, [C] each, and predicted intents; None where no part predicts them."""

    of_view: Mapping[View, Mapping[int, npt.NDArray[np.float64]]]
    intents: Mapping[int, Intents] | None = None

    def of_pools(self, pools: Sequence[TokenPool], view: View) -> npt.NDArray[np.float64]:
        """Return the offsets of all pairs of some pools, [N]."""
        return np.concatenate([np.zeros(0), *(self.of_view[view][pool.row] for pool in pools)])

    def of_pair(self, row: int, candidate: int, view: View) -> float:
        """Return the offset of a pair."""
        return float(self.of_view[view][row][candidate])

    def save(self, path: Path) -> None:
        """Write OFFSET_SCHEMA."""
        rows = sorted(self.of_view["plain"])
        intents = [None if self.intents is None else self.intents[row] for row in rows]
        columns = [rows, *([self.of_view[view][row] for row in rows] for view in ("plain", "intent")), intents]
        with atomic_write(path) as temporary:
            pq.write_table(pa.table(columns, schema=OFFSET_SCHEMA), temporary)

    @classmethod
    def load(cls, path: Path) -> Offsets:
        """Read OFFSET_SCHEMA."""
        table = read_parquet(path)
        rows = table["row"].to_pylist()
        views: tuple[View, View] = ("plain", "intent")
        of_view: dict[View, Any] = {
            view: dict(zip(rows, map(np.asarray, table[view].to_pylist()), strict=True)) for view in views
        }
        intents = table["intents"]
        return cls(of_view, None if intents.null_count else dict(zip(rows, intents.to_pylist(), strict=True)))
