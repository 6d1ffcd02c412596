"""Ranking metrics per pool, in expectation over random tie-breaking.

Candidates are ranked on logits, since sigmoids saturate and isotonic maps are flat. A block of n tied candidates takes
the n ranks after the strictly better ones, every order being equally likely. Pools without a right candidate are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from icalib.metrics.pairs import FloatArray, IntArray, PoolScores, ratio


@dataclass(frozen=True, eq=False)
class TopCandidate:
    """The candidate that is ranked first in each pool."""

    prob: FloatArray  # [B], its probability of being right (the largest one where tied candidates' differ)
    hit: FloatArray  # [B], the probability that it is right: 0 or 1 without ties, 0 where no candidate is right


def recall_at_k(scores: PoolScores, k: int) -> FloatArray:
    """Return R@k of each pool, [B]: the expected fraction of its right candidates among the first k.

    A right candidate in a block of n after g better ones is among them with probability clip((k − g) / n, 0, 1).

    Example:
        >>> scores = PoolScores.from_lists([[2.0, 1.0], [0.5, 0.1, 0.5], [0.0, 3.0]], [[1, 0], [1, 0, 0], [1, 0]])
        >>> recall_at_k(scores, 1).tolist()
        [1.0, 0.5, 0.0]
    """
    blocks = _tied_blocks(scores)
    found = blocks.right * np.clip((k - blocks.better) / blocks.size, 0, 1)
    return _per_right(_sum_blocks(blocks, found, scores.num_pools), scores)


def average_precision(scores: PoolScores) -> FloatArray:
    """Return the expected average precision of each pool, [B]; its mean is MAP, with one right candidate it is 1/rank.

    The closed form of McSherry and Najork (2008): position i of a block of n candidates, r of them right, after g
    better ones, R of them right, holds a right candidate with probability r/n, and the expected precision there is (R +
    1 + (i − 1)(r − 1)/(n − 1)) / (g + i).
    """
    blocks = _tied_blocks(scores)
    g, n, r = blocks.better, blocks.size, blocks.right
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(scores.label) + 1))])
    sum_inverse_rank = harmonic[g + n] - harmonic[g]  # Σ 1/(g + i)
    sum_position_over_rank = n - (g + 1) * sum_inverse_rank  # Σ (i − 1)/(g + i)
    others_right = (r - 1) / np.maximum(n - 1, 1)
    gained = r / n * ((blocks.better_right + 1) * sum_inverse_rank + others_right * sum_position_over_rank)
    return _per_right(_sum_blocks(blocks, gained, scores.num_pools), scores)


def reciprocal_rank(scores: PoolScores) -> FloatArray:
    """Return the expected 1/rank of the first right candidate of each pool, [B]; its mean is MRR."""
    blocks = _tied_blocks(scores)
    has_first = (blocks.right > 0) & (blocks.better_right == 0)
    better, size, right = blocks.better[has_first], blocks.size[has_first], blocks.right[has_first]
    expected, not_yet = np.zeros(len(better)), np.ones(len(better))
    for position in range(int((size - right).max(initial=0)) + 1):  # of the block: it may begin with all wrong ones
        is_right = np.clip(right / np.maximum(size - position, 1), 0, 1)
        expected += not_yet * is_right / (better + position + 1)
        not_yet *= 1 - is_right
    found = np.full(scores.num_pools, np.nan)
    found[blocks.pool[has_first]] = expected
    return found


def mean_defined(per_pool: FloatArray) -> float:
    """Return the mean over the pools that have a value; NaN if none has."""
    defined = per_pool[~np.isnan(per_pool)]
    return float(defined.mean()) if defined.size else math.nan


def top_candidate(scores: PoolScores) -> TopCandidate:
    """Return the candidate that is ranked first in each pool."""
    blocks = _tied_blocks(scores)
    first = blocks.better == 0
    largest_prob = np.maximum.reduceat(scores.prob[blocks.order], blocks.start)
    return TopCandidate(prob=largest_prob[first], hit=blocks.right[first] / blocks.size[first])


@dataclass(frozen=True, eq=False)
class _TiedBlocks:
    """Runs of equal logits in pools sorted from best to worst; one entry for each block, in `order` for each pair."""

    order: IntArray  # [N], pairs by pool and falling logit
    start: IntArray  # the block's first index in `order`
    pool: IntArray
    size: IntArray
    right: IntArray  # right candidates in the block
    better: IntArray  # candidates of the pool before the block
    better_right: IntArray  # right ones among these


def _tied_blocks(scores: PoolScores) -> _TiedBlocks:
    order = np.lexsort((-scores.logit, scores.pool))
    logit, label = scores.logit[order], scores.label[order]
    changes = (np.diff(scores.pool) != 0) | (logit[1:] != logit[:-1])
    start = np.flatnonzero(np.concatenate([[True], changes]))
    pool = scores.pool[start]  # sorting within pools keeps every index in its pool
    pool_start = scores.offsets[pool]
    right_before = np.concatenate([[0], np.cumsum(label)])
    return _TiedBlocks(
        order=order,
        start=start,
        pool=pool,
        size=np.diff(start, append=len(order)),
        right=np.add.reduceat(label, start),
        better=start - pool_start,
        better_right=right_before[start] - right_before[pool_start],
    )


def _per_right(found: FloatArray, scores: PoolScores) -> FloatArray:
    num_right = scores.pool_sum(scores.label)
    return ratio(found, num_right, np.nan)


def _sum_blocks(blocks: _TiedBlocks, values: FloatArray, num_pools: int) -> FloatArray:
    return np.bincount(blocks.pool, weights=values, minlength=num_pools).astype(np.float64)
