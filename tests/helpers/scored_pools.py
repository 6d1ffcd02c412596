"""Scored pools with known probabilities: what tests calibrate."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.metrics.pairs import PoolScores


def scored_pools(num_pools: int = 400, size: int = 6, *, seed: int = 0, slope: float = 2.5) -> PoolScores:
    """Pools with one right candidate each, or none in a tenth of them; logits are too large by the factor `slope`."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (num_pools, size))
    weight = np.exp(truth - truth.max(1, keepdims=True))
    right = np.array([rng.choice(size, p=row / row.sum()) for row in weight])
    label = (np.arange(size) == right[:, None]) & (rng.random(num_pools) > 0.1)[:, None]
    logit = slope * (truth - np.log(np.exp(truth).sum(1, keepdims=True))) + 1.0
    return PoolScores(
        pool_ids=tuple(f"q{index:05}" for index in range(num_pools)),
        logit=logit.ravel(),
        prob=np.full(num_pools * size, np.nan),
        label=label.ravel().astype(np.int64),
        offsets=np.arange(0, num_pools * size + 1, size),
    )


def pair_table(pools: PoolScores) -> pa.Table:
    """A row a pair."""
    sizes = np.diff(pools.offsets)
    return pa.table(
        {
            "query_id": np.repeat(np.array(pools.pool_ids), sizes),
            "doc_id": [f"d{index}" for size in sizes for index in range(size)],
            "rerank_score": pools.logit,
            "relevant": pools.label == 1,
            "note": [f"row {index}" for index in range(len(pools.logit))],
        }
    )


def list_rows(pools: PoolScores) -> list[dict[str, object]]:
    """A row a pool, with labels as lists."""
    parts = zip(pools.pool_ids, pools.split(pools.logit), pools.split(pools.label), strict=True)
    return [{"qid": name, "scores": score.tolist(), "labels": label.tolist()} for name, score, label in parts]


def write_jsonl(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_run(folder: Path, pools: PoolScores) -> tuple[Path, Path]:
    """A TREC run and its judgements, which leave wrong candidates out but for one of each pool."""
    run, qrels = folder / "bm25.run", folder / "qrels.txt"
    lines, judged = [], []
    for name, score, label in zip(pools.pool_ids, pools.split(pools.logit), pools.split(pools.label), strict=True):
        for rank, index in enumerate(np.argsort(-score), 1):
            lines.append(f"{name} Q0 d{index} {rank} {float(score[index])!r} tag")
        judged += [f"{name} 0 d{index} {int(one)}" for index, one in enumerate(label) if one or index == 0]
    run.write_text("\n".join(lines) + "\n")
    qrels.write_text("\n".join(judged) + "\n")
    return run, qrels


def write_pairs(path: Path, pools: PoolScores, change: Callable[[pa.Table], pa.Table] = lambda table: table) -> Path:
    """A Parquet file with a row a pair, in small row groups."""
    pq.write_table(change(pair_table(pools)), path, row_group_size=100)
    return path
