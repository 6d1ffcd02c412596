"""Reading pseudo-label shards for training."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from icalib.core.files import content_digest
from icalib.core.parquet import read_parquet
from icalib.data.encoding import TokenStore
from icalib.training.examples import PairLabels


def pseudo_labelled(folder: Path, store: TokenStore) -> list[PairLabels]:
    """Return the labels of the pools in a round's pseudo-label shards.

    Pairs that are kept with intents are trained on in both views, if these differ, and their context's intents are
    targets. Where no intent is predicted the intent part has a value of its own, but the cross-encoder reads one text.
    """
    paths = sorted(folder.glob("pseudo-*.parquet"))
    by_id = store.rows_of(read_parquet(path, ["pool_id"])["pool_id"].unique() for path in paths)
    pools: list[PairLabels] = []
    for path in paths:
        table = read_parquet(path)
        intents = _shard_intents(path)
        ids = np.asarray(table["pool_id"].to_pylist(), dtype=object)
        bounds = [*np.flatnonzero(np.append([True], ids[1:] != ids[:-1])), len(ids)] if len(ids) else []
        candidates, labels = (table[name].to_numpy().astype(np.int64) for name in ("candidate", "label"))
        intent_view = np.asarray(table["view"].to_pylist(), dtype=object) == "intent"
        for start, end in pairwise(bounds):
            row, pairs = by_id[str(ids[start])], slice(start, end)
            predicted = intents.get(row, ())
            has_intents = intent_view[pairs] & any(map(len, predicted))
            given = (row, candidates[pairs], labels[pairs], has_intents, predicted)
            pools.append(PairLabels(*given, learn_intents=bool(has_intents.any())))
    return pools


def _shard_intents(path: Path) -> dict[int, Any]:
    if not (intents := _intents_path(path)).is_file():
        return {}
    table = read_parquet(intents)
    return dict(zip(table["row"].to_pylist(), table["intents"].to_pylist(), strict=True))


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
