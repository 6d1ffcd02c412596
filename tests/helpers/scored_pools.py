"""Scored pools with known probabilities: what tests calibrate."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.metrics.pairs import PoolScores


def scored_pools(
    num_pools: int = 400,
    *,
    size: int = 6,
    seed: int = 0,
    slope: float = 2.5,
    none_right: float = 0.1,
    levels: float = 0,
) -> PoolScores:
    """Pools with one right candidate each, or none in `none_right` of them; logits are too large by the factor `slope`.

    Each pool's are on a level of its own, of deviation `levels`.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (num_pools, size))
    weight = np.exp(truth - truth.max(1, keepdims=True))
    right = np.array([rng.choice(size, p=row / row.sum()) for row in weight])
    label = (np.arange(size) == right[:, None]) & (rng.random(num_pools) > none_right)[:, None]
    logit = slope * (truth - np.log(np.exp(truth).sum(1, keepdims=True))) + 1.0
    logit += rng.normal(0, levels, (num_pools, 1))
    return PoolScores(
        pool_ids=tuple(f"q{index:05}" for index in range(num_pools)),
        logit=logit.ravel(),
        prob=np.full(num_pools * size, np.nan),
        label=label.ravel().astype(np.int64),
        offsets=np.arange(0, num_pools * size + 1, size),
    )


def score_rows(pools: PoolScores) -> list[dict[str, Any]]:
    """A row a pair."""
    names = [pools.pool_ids[index] for index in pools.pool]
    places = np.arange(len(pools.logit)) - pools.offsets[pools.pool]
    return [
        {"query": query, "candidate": f"d{place}", "score": score, "label": label, "note": f"row, {row}"}
        for row, (query, place, score, label) in enumerate(
            zip(names, places.tolist(), pools.logit.tolist(), pools.label.tolist(), strict=True)
        )
    ]


def write_scores(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A file of rows, in the format that its name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path, row_group_size=100)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
