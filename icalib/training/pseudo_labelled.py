"""Pseudo-label shards, as training reads them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icalib.core.files import content_digest
from icalib.data.encoding import TokenStore
from icalib.training.examples import PairLabels


def pseudo_labelled(folder: Path, store: TokenStore) -> list[PairLabels]:
    """The pools of a round's pseudo-label shards.

    A pair with intents is learnt in both views, one without only in the plain view; a context's predicted intents
    are targets if a kept pair of it is with intents.
    """
    by_id = {str(name): row for row, name in enumerate(store.column("pool_id"))}
    pools: list[PairLabels] = []
    for path in sorted(folder.glob("pseudo-*.parquet")):
        table = pq.read_table(path)
        intents = _shard_intents(path)
        ids = np.asarray(table["pool_id"].to_pylist(), dtype=object)
        bounds = [*np.flatnonzero(np.append([True], ids[1:] != ids[:-1])), len(ids)] if len(ids) else []
        candidates, labels = table["candidate"].to_numpy(), table["label"].to_numpy()
        intent_view = np.asarray(table["view"].to_pylist(), dtype=object) == "intent"
        for start, end in pairwise(bounds):
            row = by_id[str(ids[start])]
            pools.append(
                PairLabels(
                    row=row,
                    candidates=candidates[start:end].astype(np.int64),
                    labels=labels[start:end].astype(np.int64),
                    intent_view=intent_view[start:end],
                    intents=intents.get(row, ()),
                    learn_intents=bool(intent_view[start:end].any()),
                )
            )
    return pools


def _shard_intents(path: Path) -> dict[int, Any]:
    intents = _intents_path(path)
    if not intents.is_file():
        return {}
    table = pq.read_table(intents)
    return dict(zip(table["row"].to_pylist(), table["intents"].to_pylist(), strict=True))


def _intents_path(shard: Path) -> Path:
    return shard.with_name(shard.name.replace("pseudo-", "intents-"))


def pseudo_label_digest(folder: Path) -> str:
    """Digest of what training takes from a round's pseudo-label shards.

    Rules that select the same pairs, with the same labels, views and intents, have the same digest: figures such as
    gains don't count, nor do intents that no kept pair is learnt with.
    """
    return content_digest([_learnt(path) for path in sorted(folder.glob("pseudo-*.parquet"))])


def _learnt(path: Path) -> dict[str, Any]:
    table = pq.read_table(path, columns=["pool_id", "candidate", "label", "view"])
    with_intents = set(table.filter(pc.field("view") == "intent")["pool_id"].to_pylist())
    intents: dict[str, Any] = {}
    shard = _intents_path(path)
    if shard.is_file():
        rows = pq.read_table(shard, columns=["pool_id", "intents"]).to_pylist()
        intents = {row["pool_id"]: row["intents"] for row in rows if row["pool_id"] in with_intents}
    return {"pairs": table.to_pydict(), "intents": intents}
