"""The case table: test pools on which two methods differ, with what every method predicts for every candidate.

The order is fixed by rule, so that nothing is picked by hand: pools that only the first method gets right, then
pools that only the second gets right, each by falling difference of the probability given to the right candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icalib.core.files import read_json, reading
from icalib.core.run_folder import RunFolder
from icalib.core.storage import local_path
from icalib.data.schema import POOLS_FILE

CASES_PER_KIND = 4

Case = Mapping[str, Any]
"""`pool` as POOL_SCHEMA has it, `predicted_intents` of each utterance, `candidates` as the first method ranks them.

A candidate has `text`, `is_right`, `probs` and `is_top` by method, and the first method's `gain` and `view`.
"""


@final
@dataclass(frozen=True)
class CaseTable:
    """Cases of the methods `labels`; a group has its title, its number of pools, and the first few cases."""

    labels: tuple[str, ...]
    num_pools: int
    groups: tuple[tuple[str, int, list[Case]], ...]

    @property
    def has_gain(self) -> bool:
        """Whether the first method weighs intents."""
        return any(c["gain"] is not None for *_, cases in self.groups for case in cases for c in case["candidates"])


_Rows = list[dict[str, Any]]
"""A method's predictions for the candidates of a pool."""


def build_case_table(runs: Mapping[str, RunFolder]) -> CaseTable | None:
    """Return the case table of runs by label on one pool set; the first two labels are the ones compared.

    None where the pools' texts are gone or the runs have no pool in common.
    """
    labels, first = tuple(runs), next(iter(runs.values()))
    folder = _pools_of(first)
    predictions = [_by_pool(run.predictions("test")) for run in runs.values()]
    shared = sorted(set[str].intersection(*(set(table) for table in predictions)))
    if folder is None or not shared:
        return None
    pools_file = folder / "test.parquet"
    kinds = _kinds(labels, predictions, shared)
    wanted = [pool_id for pool_ids in kinds.values() for pool_id in pool_ids[:CASES_PER_KIND]]
    is_wanted = pc.field("pool_id").isin(pa.array(wanted, pa.string()))  # typed: there may be none
    with reading(pools_file):
        pools = {pool["pool_id"]: pool for pool in pq.read_table(pools_file, filters=is_wanted).to_pylist()}
    table = first.predicted_intents("test")
    rows = table.to_pylist() if table is not None else []
    intents = {(row["pool_id"], row["utterance"]): tuple(row["intents"]) for row in rows}
    cases = {
        pool_id: _case(pool, [table[pool_id] for table in predictions], intents) for pool_id, pool in pools.items()
    }
    groups = (
        (title, len(ids), [cases[one] for one in ids[:CASES_PER_KIND] if one in cases]) for title, ids in kinds.items()
    )
    return CaseTable(labels, len(shared), tuple(groups))


def _pools_of(run: RunFolder) -> Path | None:
    """Return the folder of a run's pools; None where they are gone, or were prepared again and are others now."""
    folder = local_path(run.config["data"])
    metadata = folder / POOLS_FILE
    return folder if metadata.is_file() and read_json(metadata)["digest"] == run.data_digest else None


def _by_pool(predictions: pa.Table) -> dict[str, _Rows]:
    pools: dict[str, _Rows] = {}
    for row in predictions.sort_by([("pool_id", "ascending"), ("candidate", "ascending")]).to_pylist():
        pools.setdefault(row["pool_id"], []).append(row)
    return {pool_id: rows for pool_id, rows in pools.items() if any(row["label"] == 1 for row in rows)}


def _kinds(
    labels: Sequence[str], predictions: Sequence[Mapping[str, _Rows]], shared: Sequence[str]
) -> dict[str, list[str]]:
    compared = predictions[:2]
    hits = {one: [table[one][_top(table[one])]["label"] == 1 for table in compared] for one in shared}
    probs = {one: [max(row["prob"] for row in table[one] if row["label"] == 1) for table in compared] for one in shared}
    if len(labels) == 1:
        order = sorted(shared, key=lambda one: (-probs[one][0], one))
        return {
            f"{labels[0]} is right": [one for one in order if hits[one][0]],
            f"{labels[0]} is wrong": [one for one in reversed(order) if not hits[one][0]],
        }
    order = sorted(shared, key=lambda one: (probs[one][1] - probs[one][0], one))
    return {
        f"{labels[0]} is right, {labels[1]} is wrong": [one for one in order if hits[one] == [True, False]],
        f"{labels[1]} is right, {labels[0]} is wrong": [one for one in reversed(order) if hits[one] == [False, True]],
    }


def _top(rows: _Rows) -> int:
    return int(np.argmax([row["logit"] for row in rows]))


def _case(
    pool: Mapping[str, Any], predictions: Sequence[_Rows], intents: Mapping[tuple[str, int], tuple[str, ...]]
) -> Case:
    tops = [_top(rows) for rows in predictions]
    candidates = [
        {
            "text": pool["candidates"][row["candidate"]],
            "is_right": row["label"] == 1,
            "gain": None if math.isnan(row["gain"]) else row["gain"],
            "view": row["view"],
            "probs": [rows[index]["prob"] for rows in predictions],
            "is_top": [top == index for top in tops],
        }
        for index, row in enumerate(predictions[0])
    ]
    ranked = np.argsort([-row["logit"] for row in predictions[0]], kind="stable")
    return {
        "pool": pool,
        "predicted_intents": [intents.get((pool["pool_id"], number), ()) for number in range(len(pool["context"]))],
        "candidates": [candidates[index] for index in ranked],
    }
