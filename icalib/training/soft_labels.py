"""Soft labels of unlabelled training pools: one candidate each, with the probability that it is the right one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from icalib.core.parquet import read_parquet
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.training.examples import PairLabels

SOFT_LABELS_FILE = "soft_labels.parquet"
"""Beside the pools that they are of; `PoolSet.soft_labels` says whose they are."""
SOFT_LABEL_SCHEMA = pa.schema(
    [("pool_id", pa.string()), ("annotator", pa.string()), ("candidate", pa.int32()), ("precision", pa.float64())]
)


def soft_labelled_pools(path: Path) -> set[str]:
    """Return the ids of all pools with a soft label."""
    return set(read_parquet(path, schema=SOFT_LABEL_SCHEMA)["pool_id"].to_pylist())


def soft_labelled(path: Path, store: TokenStore, selection: Selection, taken: set[int]) -> list[PairLabels]:
    """Return the soft labels of a run's unlabelled pools, save those in the rows `taken`, in the plain view.

    Pools that the run has labelled are left out here, so that a fold which is left out of training stays out.
    """
    rows, names = selection.rows("train", "unlabelled", store.column("label_order")), store.column("pool_id")
    by_id = {str(names[row]): row for row in rows.tolist() if row not in taken}
    sizes: list[int] = np.diff(store.keys("candidate_keys").offsets).tolist()
    found: list[PairLabels] = []
    for label in read_parquet(path, schema=SOFT_LABEL_SCHEMA).to_pylist():
        if (row := by_id.get(label["pool_id"])) is not None:
            every = np.arange(sizes[row])
            is_right, view = (every == label["candidate"]).astype(np.int64), np.zeros(len(every), np.bool_)
            found.append(PairLabels(row, every, is_right, view, precision=label["precision"]))
    return found
