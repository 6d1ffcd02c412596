"""Selective answering: risk and coverage when only confident pools are answered.

The unit is the pool: its error is 1 − hit@1, its confidence the probability of the candidate that is ranked first.
Pools of equal confidence have no order, so what counts is how many pools and errors each such block has. Samples of
the pools, drawn with replacement, differ in these counts only: pools are sorted once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icalib.metrics.pairs import FloatArray, IntArray, ratio


class Blocks(NamedTuple):
    """Pools of R samples in each of K blocks of equal confidence, most confident first, [R, K] each."""

    num_pools: FloatArray
    num_errors: FloatArray


@dataclass(frozen=True, eq=False)
class RankedPools:
    """Q pools by falling confidence."""

    order: IntArray  # [Q], which pool is where
    start: IntArray  # [K], where each block begins
    error: FloatArray  # [Q], by falling confidence

    @classmethod
    def by(cls, confidence: FloatArray, error: FloatArray) -> RankedPools:
        """Rank pools by their confidence, [Q]; an error between 0 and 1 is that fraction of one and the rest a hit."""
        order = np.argsort(-confidence, kind="stable")
        starts_block = np.concatenate([[True], np.diff(confidence[order]) != 0])
        return cls(order, np.flatnonzero(starts_block), np.asarray(error, np.float64)[order])

    def blocks(self, times: FloatArray | None = None) -> Blocks:
        """Return the blocks of samples that hold pool q `times[r, q]` times; of each pool once without it (R = 1)."""
        drawn = np.ones((1, len(self.order))) if times is None else times[:, self.order]
        return Blocks(
            np.add.reduceat(drawn, self.start, axis=1), np.add.reduceat(drawn * self.error, self.start, axis=1)
        )


def risk_coverage(pools: RankedPools) -> tuple[FloatArray, FloatArray]:
    """Return coverage i/Q and risk, the expected mean error of the i most confident pools, [Q] each."""
    num_pools, num_errors = (counts[0] for counts in pools.blocks())
    answered = np.arange(1, len(pools.order) + 1)
    risk = np.cumsum(np.repeat(num_errors / num_pools, num_pools.astype(np.int64))) / answered
    return answered / len(pools.order), risk


def aurc(blocks: Blocks) -> FloatArray:
    """Return the area under the risk-coverage curve, (1/Q) Σ_i risk_i (Geifman et al. 2019): [R].

    In a block of n pools with mean error m, after N pools with E errors, risk_i = (E + (i − N) m) / i, whose sum over i
    is (E − N m) Σ 1/i + n m.

    Example:
        >>> pools = RankedPools.by(np.array([0.9, 0.8, 0.4]), np.array([0.0, 1.0, 0.0]))
        >>> aurc(pools.blocks()).round(3).tolist()
        [0.278]
    """
    up_to, errors_up_to = np.cumsum(blocks.num_pools, axis=1), np.cumsum(blocks.num_errors, axis=1)
    before, errors_before = up_to - blocks.num_pools, errors_up_to - blocks.num_errors
    mean_error = ratio(blocks.num_errors, blocks.num_pools, 0.0)
    total = up_to[:, -1]
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, total.max() + 1))])
    inverse_ranks = harmonic[up_to.astype(np.int64)] - harmonic[before.astype(np.int64)]
    return ((errors_before - before * mean_error) * inverse_ranks + blocks.num_errors).sum(axis=1) / total


def auroc(blocks: Blocks) -> FloatArray:
    """Return the probability that a hit is more confident than an error, ties counting half: [R]; NaN without both."""
    num_hits = blocks.num_pools - blocks.num_errors
    all_errors = blocks.num_errors.sum(axis=1)
    less_confident = all_errors[:, np.newaxis] - np.cumsum(blocks.num_errors, axis=1) + blocks.num_errors / 2
    return ratio((num_hits * less_confident).sum(axis=1), num_hits.sum(axis=1) * all_errors, np.nan)


def accepted_errors(blocks: Blocks, hits: float) -> FloatArray:
    """Return the fraction of errors among the most confident pools that hold a fraction `hits` of all hits: [R].

    Pools of equal confidence are accepted together; NaN without both hits and errors.
    """
    hits_up_to = np.cumsum(blocks.num_pools - blocks.num_errors, axis=1)
    errors_up_to = np.cumsum(blocks.num_errors, axis=1)
    needed = np.ceil(hits * hits_up_to[:, -1:] - 1e-9)  # 0.9 · 10 may be above 9
    last = np.argmax(hits_up_to >= np.maximum(needed, 1), axis=1)
    accepted = np.take_along_axis(errors_up_to, last[:, np.newaxis], axis=1)[:, 0]
    total = np.where(hits_up_to[:, -1] > 0, errors_up_to[:, -1], 0.0)
    return ratio(accepted, total, np.nan)
