"""Labels that no person gave, read for training: shards of pseudo labels, and soft labels of unlabelled pools.

A soft label is one candidate, with the probability that it is the right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icalib.core.files import content_digest
from icalib.core.parquet import read_parquet
from icalib.data.encoding import Lists, ListsOfLists, Numbers, TokenStore
from icalib.data.selection import Selection
from icalib.training.examples import LabelledPools

SOFT_LABELS_FILE = "soft_labels.parquet"
"""Beside the pools that they are of; `PoolSet.soft_labels` says whose they are."""
SOFT_LABEL_SCHEMA = pa.schema(
    [("pool_id", pa.string()), ("annotator", pa.string()), ("candidate", pa.int32()), ("precision", pa.float64())]
)


def pseudo_labelled(folder: Path, store: TokenStore) -> LabelledPools:
    """Return the labels of the pools in a round's pseudo-label shards.

    Pairs that are kept with intents are trained on in both views, if these differ, and their context's intents are
    targets. Where no intent is predicted the intent part has a value of its own, but the cross-encoder reads one text.
    """
    paths = sorted(folder.glob("pseudo-*.parquet"))
    by_id = store.rows_of(read_parquet(path, ["pool_id"])["pool_id"].unique() for path in paths)
    return LabelledPools.joined([_of_shard(path, by_id) for path in paths] or [LabelledPools.of([])])


def _of_shard(path: Path, by_id: Mapping[str, int]) -> LabelledPools:
    table = read_parquet(path)
    ids = np.asarray(table["pool_id"].to_pylist(), dtype=object)
    starts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
    offsets = np.concatenate([[0], starts, [len(ids)]]) if len(ids) else np.zeros(1, np.int64)
    rows_P = np.array([by_id[str(ids[start])] for start in offsets[:-1]], np.int64)
    candidates, labels_N = table["candidate"].to_numpy().astype(np.int32), table["label"].to_numpy().astype(np.int8)
    intents = _shard_intents(path, rows_P)
    is_kept_N = np.asarray(table["view"].to_pylist(), dtype=object) == "intent"
    view_N = is_kept_N & np.repeat(intents.num_values() > 0, np.diff(offsets))
    learn_P = Lists(view_N, offsets).totals() > 0
    pairs = Lists(candidates, offsets)
    return LabelledPools(rows_P, pairs, labels_N, view_N, intents, learn_P, np.ones(len(rows_P)))


def _shard_intents(path: Path, rows_P: Numbers) -> ListsOfLists:
    """Return the predicted intents of the pools in some rows; nothing for those of which none were predicted."""
    if not (intents := _intents_path(path)).is_file():
        return ListsOfLists.empty(len(rows_P))
    table = read_parquet(intents)
    place = pc.call_function("index_in", [pa.array(rows_P)], pc.SetLookupOptions(table["row"].combine_chunks()))
    return ListsOfLists.of(table["intents"].take(place))


def _intents_path(shard: Path) -> Path:
    return shard.with_name(shard.name.replace("pseudo-", "intents-"))


def pseudo_label_digest(folder: Path) -> str:
    """Return the digest of what training reads from a round's shards: pairs, labels, views and intents that are used.

    Rules that select the same have the same digest; values such as gains are left out.
    """
    # file by file: the driver computes it
    return content_digest([content_digest(_training_content(path)) for path in sorted(folder.glob("pseudo-*.parquet"))])


def _training_content(path: Path) -> dict[str, Any]:
    table = read_parquet(path, columns=["pool_id", "candidate", "label", "view"])
    with_intents = set(table.filter(pc.field("view") == "intent")["pool_id"].to_pylist())
    intents: dict[str, Any] = {}
    intents_path = _intents_path(path)
    if intents_path.is_file():
        rows = read_parquet(intents_path, columns=["pool_id", "intents"]).to_pylist()
        intents = {row["pool_id"]: row["intents"] for row in rows if row["pool_id"] in with_intents}
    return {"pairs": table.to_pydict(), "intents": intents}


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
