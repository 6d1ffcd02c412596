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

from icalib.core.files import reading
from icalib.core.run_folder import RunFolder

CASES_PER_KIND = 4


@final
@dataclass(frozen=True)
class Turn:
    """One utterance of a context with the intents it was given and the ones that were predicted."""

    speaker: str
    text: str
    gold_intents: tuple[str, ...]
    predicted_intents: tuple[str, ...]


@final
@dataclass(frozen=True)
class Candidate:
    """One candidate; `probs` and `is_top` have one entry per method, `gain` and `view` are the first method's."""

    text: str
    is_right: bool
    gain: float | None
    view: str
    probs: tuple[float, ...]
    is_top: tuple[bool, ...]


@final
@dataclass(frozen=True)
class Case:
    """One pool: its context and its candidates in the order in which the first method ranks them."""

    pool_id: str
    domain: str
    turns: tuple[Turn, ...]
    candidates: tuple[Candidate, ...]


@final
@dataclass(frozen=True)
class CaseGroup:
    """Cases of one kind: how many pools there are of it, and the first few of them."""

    title: str
    num_pools: int
    cases: tuple[Case, ...]


@final
@dataclass(frozen=True)
class CaseTable:
    """Case groups of the methods `labels`; the first one's gains and views are shown."""

    labels: tuple[str, ...]
    num_pools: int
    groups: tuple[CaseGroup, ...]
    has_gain: bool


def build_case_table(runs: Mapping[str, RunFolder]) -> CaseTable | None:
    """The case table of runs by label on one pool set; the first two labels are the ones compared.

    None where the pools' texts are gone or the runs have no pool in common.
    """
    labels = tuple(runs)
    pools_file = Path(next(iter(runs.values())).config["data"]) / "test.parquet"
    predictions = [_by_pool(run.predictions("test")) for run in runs.values()]
    shared = sorted(set[str].intersection(*(set(table) for table in predictions)))
    if not pools_file.is_file() or not shared:
        return None
    kinds = _kinds(labels, predictions, shared)
    wanted = [pool_id for _, pool_ids in kinds for pool_id in pool_ids[:CASES_PER_KIND]]
    is_wanted = pc.field("pool_id").isin(pa.array(wanted, pa.string()))  # typed: there may be none
    with reading(pools_file):
        pools = {pool["pool_id"]: pool for pool in pq.read_table(pools_file, filters=is_wanted).to_pylist()}
    intents = _intents(next(iter(runs.values())))
    groups = tuple(
        CaseGroup(
            title,
            len(pool_ids),
            tuple(
                _case(pools[pool_id], [table[pool_id] for table in predictions], intents)
                for pool_id in pool_ids[:CASES_PER_KIND]
                if pool_id in pools
            ),
        )
        for title, pool_ids in kinds
    )
    has_gain = any(c.gain is not None for group in groups for case in group.cases for c in case.candidates)
    return CaseTable(labels, len(shared), groups, has_gain)


_Rows = list[dict[str, Any]]


def _by_pool(predictions: pa.Table) -> dict[str, _Rows]:
    pools: dict[str, _Rows] = {}
    for row in predictions.sort_by([("pool_id", "ascending"), ("candidate", "ascending")]).to_pylist():
        pools.setdefault(row["pool_id"], []).append(row)
    return {pool_id: rows for pool_id, rows in pools.items() if any(row["label"] == 1 for row in rows)}


def _kinds(
    labels: Sequence[str], predictions: Sequence[Mapping[str, _Rows]], shared: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Titles and pools of each kind, the most informative pools first."""
    hit = [{pool_id: _is_hit(table[pool_id]) for pool_id in shared} for table in predictions]
    prob = [{pool_id: _right_prob(table[pool_id]) for pool_id in shared} for table in predictions]
    if len(labels) == 1:
        by_prob = sorted(shared, key=lambda pool_id: (-prob[0][pool_id], pool_id))
        return [
            (f"{labels[0]} is right", [pool_id for pool_id in by_prob if hit[0][pool_id]]),
            (f"{labels[0]} is wrong", [pool_id for pool_id in reversed(by_prob) if not hit[0][pool_id]]),
        ]
    by_gap = sorted(shared, key=lambda pool_id: (prob[1][pool_id] - prob[0][pool_id], pool_id))
    first, second = labels[:2]
    return [
        (
            f"{first} is right, {second} is wrong",
            [pool_id for pool_id in by_gap if hit[0][pool_id] and not hit[1][pool_id]],
        ),
        (
            f"{second} is right, {first} is wrong",
            [pool_id for pool_id in reversed(by_gap) if hit[1][pool_id] and not hit[0][pool_id]],
        ),
    ]


def _is_hit(rows: _Rows) -> bool:
    return rows[_top(rows)]["label"] == 1


def _top(rows: _Rows) -> int:
    return int(np.argmax([row["logit"] for row in rows]))


def _right_prob(rows: _Rows) -> float:
    return max(row["prob"] for row in rows if row["label"] == 1)


def _intents(run: RunFolder) -> dict[tuple[str, int], tuple[str, ...]]:
    table = run.predicted_intents("test")
    rows = table.to_pylist() if table is not None else []
    return {(row["pool_id"], row["utterance"]): tuple(row["intents"]) for row in rows}


def _case(
    pool: Mapping[str, Any],
    predictions: Sequence[_Rows],
    intents: Mapping[tuple[str, int], tuple[str, ...]],
) -> Case:
    tops = [_top(rows) for rows in predictions]
    candidates = [
        Candidate(
            text=pool["candidates"][row["candidate"]],
            is_right=row["label"] == 1,
            gain=None if math.isnan(row["gain"]) else row["gain"],
            view=row["view"],
            probs=tuple(rows[index]["prob"] for rows in predictions),
            is_top=tuple(top == index for top in tops),
        )
        for index, row in enumerate(predictions[0])
    ]
    ranked = np.argsort([-row["logit"] for row in predictions[0]], kind="stable")
    turns = tuple(
        Turn(
            utterance["speaker"],
            utterance["text"],
            tuple(utterance["intents"]),
            intents.get((pool["pool_id"], number), ()),
        )
        for number, utterance in enumerate(pool["context"])
    )
    return Case(pool["pool_id"], pool["domain"], turns, tuple(candidates[index] for index in ranked))
