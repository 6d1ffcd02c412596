"""Soft labels of unlabelled training pools: one candidate each, with the probability that it is the right one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from icalib.core.parquet import read_parquet
from icalib.data.encoding import Lists, TokenStore
from icalib.data.selection import Selection
from icalib.training.examples import LabelledPools

SOFT_LABELS_FILE = "soft_labels.parquet"
"""Beside the pools that they are of; `PoolSet.soft_labels` says whose they are."""
SOFT_LABEL_SCHEMA = pa.schema(
    [("pool_id", pa.string()), ("annotator", pa.string()), ("candidate", pa.int32()), ("precision", pa.float64())]
)


def soft_labelled_pools(path: Path) -> set[str]:
    """Return the ids of all pools with a soft label."""
    return set(read_parquet(path, schema=SOFT_LABEL_SCHEMA)["pool_id"].to_pylist())


def soft_labelled(path: Path, store: TokenStore, selection: Selection, taken: set[int]) -> LabelledPools:
    """Return the soft labels of a run's unlabelled pools, save those in the rows `taken`, in the plain view.

    Pools that the run has labelled are left out here, so that a fold which is left out of training stays out.
    """
    rows, names = selection.rows("train", "unlabelled", store.column("label_order")), store.column("pool_id")
    by_id = {str(names[row]): row for row in rows.tolist() if row not in taken}
    labels = [one for one in read_parquet(path, schema=SOFT_LABEL_SCHEMA).to_pylist() if one["pool_id"] in by_id]
    rows_P = np.array([by_id[one["pool_id"]] for one in labels], np.int64)
    sizes = np.diff(store.keys("candidate_keys").offsets)[rows_P]
    every = Lists.of_sizes(sizes)
    chosen = np.array([one["candidate"] for one in labels], np.int64)
    is_right_N = (every.values == chosen[every.rows()]).astype(np.int8)
    precision_P = np.array([one["precision"] for one in labels], np.float64)
    return LabelledPools.without_intents(rows_P, every, is_right_N, precision_P)
