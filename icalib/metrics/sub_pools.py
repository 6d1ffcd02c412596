"""Pools of fewer candidates, drawn from larger ones: what a question with so few candidates would look like."""

from __future__ import annotations

import numpy as np

from icalib.core.errors import DataError
from icalib.metrics.pairs import PoolScores


def sub_pools(scores: PoolScores, size: int, *, seed: int) -> PoolScores:
    """Return pools of `size` candidates: all right ones and a random draw of the wrong ones.

    Pools that are smaller, or have more right candidates, are left out. If the wrong candidates of a pool are
    exchangeable, so are these pools with others that have fewer wrong candidates from the same source.

    Args:
        scores: the larger pools.
        size: number of candidates, 1 or more.
        seed: determines the draw.

    Raises:
        DataError: no pool is large enough.
    """
    kept = (scores.sizes() >= size) & (scores.pool_sum(scores.label) <= size)
    if not kept.any():
        raise DataError(
            f"none of {scores.num_pools} pools has {size} candidates or more", "Score pools that are as large."
        )
    key = np.where(scores.label == 1, -1.0, np.random.default_rng(seed).random(len(scores.label)))
    rank = np.empty(len(key), np.int64)
    rank[np.lexsort((key, scores.pool))] = np.arange(len(key)) - scores.offsets[scores.pool]
    chosen = (rank < size) & kept[scores.pool]
    return PoolScores(
        pool_ids=tuple(name for name, keep in zip(scores.pool_ids, kept, strict=True) if keep),
        logit=scores.logit[chosen],
        prob=scores.prob[chosen],
        label=scores.label[chosen],
        offsets=np.arange(int(kept.sum()) + 1, dtype=np.int64) * size,
    )
