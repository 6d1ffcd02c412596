"""Calibration errors, reliability table, Brier score and likelihood.

`prob` and `label` are [N]: the probability that a pair is right, and whether it is; labels may be fractions (the
probability of a hit among tied candidates).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from icalib.metrics.pairs import FloatArray, IntArray

Labels = IntArray | FloatArray

NUM_BINS = 10
PROB_CLIP = 1e-7


class BinSums(NamedTuple):
    """Sums over the pairs in each of M equal bins, [..., M] each; leading axes are pools or resamples."""

    num_pairs: FloatArray
    prob: FloatArray
    label: FloatArray


def bin_sums(prob: FloatArray, label: Labels, num_bins: int = NUM_BINS, group: IntArray | None = None) -> BinSums:
    """Return sums in bins min(⌊p M⌋, M − 1): [M], or [groups, M] where `group` [N] holds each pair's group."""
    cell = np.minimum((prob * num_bins).astype(np.int64), num_bins - 1)
    shape: tuple[int, ...] = (num_bins,)
    if group is not None:
        cell = cell + group * num_bins
        shape = (int(group.max()) + 1, num_bins)

    def cell_sum(values: Labels) -> FloatArray:
        sums = np.bincount(cell, weights=values, minlength=math.prod(shape))
        return sums.astype(np.float64).reshape(shape)

    return BinSums(num_pairs=cell_sum(np.ones_like(prob)), prob=cell_sum(prob), label=cell_sum(label))


def ece_of(sums: BinSums) -> FloatArray:
    """Return the expected calibration error Σ (n_b / n) |acc_b − conf_b|: [..., M] → [...]."""
    return np.abs(sums.prob - sums.label).sum(axis=-1) / sums.num_pairs.sum(axis=-1)


def ece(prob: FloatArray, label: Labels, *, num_bins: int = NUM_BINS) -> float:
    """Return the expected calibration error over bins of equal width (Naeini et al. 2015)."""
    return float(ece_of(bin_sums(prob, label, num_bins)))


@dataclass(frozen=True, eq=False)
class SortedPairs:
    """N pairs of B pools by rising probability, sorted once for all samples of the pools."""

    gap: FloatArray  # [N], p − y
    pool: IntArray  # [N]
    tied_from: IntArray  # the index of each distinct p's first pair

    @classmethod
    def of(cls, prob: FloatArray, label: Labels, pool: IntArray) -> SortedPairs:
        """Sort pairs; `pool` is the index of each one's pool, [N]."""
        order = np.argsort(prob, kind="stable")
        ascending = prob[order]
        is_new = np.concatenate([[True], ascending[1:] != ascending[:-1]])
        return cls((prob - label)[order], pool[order], np.flatnonzero(is_new))


def adaptive_ece(pairs: SortedPairs, times: FloatArray, *, num_bins: int = NUM_BINS) -> FloatArray:
    """Return the ECE over bins of equal count, of samples that hold pool b `times[r, b]` times: [R, B] → [R].

    The sizes of bins differ by at most one; tied pairs at their edges are split in proportion, so that order has no
    effect.
    """
    return np.array([_equal_count_error(pairs, row, num_bins) for row in times])


def _equal_count_error(pairs: SortedPairs, times: FloatArray, num_bins: int) -> float:
    count = times[pairs.pool]
    total_count = np.concatenate([[0.0], np.cumsum(np.add.reduceat(count, pairs.tied_from))])
    total_gap = np.concatenate([[0.0], np.cumsum(np.add.reduceat(count * pairs.gap, pairs.tied_from))])
    size, larger = divmod(int(total_count[-1]), num_bins)
    edges = size * np.arange(num_bins + 1) + np.minimum(np.arange(num_bins + 1), larger)
    gap_at_edge = np.interp(edges, total_count, total_gap)
    return float(np.abs(np.diff(gap_at_edge)).sum() / total_count[-1])


def brier(prob: FloatArray, label: Labels) -> float:
    """Return the Brier score, mean (p − y)²."""
    return float(np.mean((prob - label) ** 2))


def log_losses(prob: FloatArray, label: Labels) -> FloatArray:
    """Return the negative log-likelihood of each pair in nats, [N]; prob is clipped to [1e-7, 1 − 1e-7]."""
    clipped = np.clip(prob, PROB_CLIP, 1 - PROB_CLIP)
    right = label.astype(np.float64)
    return -(right * np.log(clipped) + (1 - right) * np.log1p(-clipped))


def nll(prob: FloatArray, label: Labels) -> float:
    """Return the mean of `log_losses`."""
    return float(np.mean(log_losses(prob, label)))


def nll_from_logits(logit: FloatArray, label: Labels) -> float:
    """Return the mean negative log-likelihood in nats of probabilities σ(logit), exact where they saturate."""
    return float(np.mean(np.logaddexp(0, logit) - label * logit))


def reliability_table(prob: FloatArray, label: Labels) -> pa.Table:
    """Return the data of a reliability diagram, one row for each of 10 equal bins.

    Edges `lo` and `hi`, `n` pairs, their mean probability `conf`, and the fraction `acc` of right ones with Wilson's 95
    % interval `acc_low` to `acc_high` (an empty bin: NaN, and 0 to 1).
    """
    sums = bin_sums(prob, label)
    count = np.where(sums.num_pairs, sums.num_pairs, np.nan)
    acc_low, acc_high = wilson_interval(sums.label, sums.num_pairs)
    edges = np.arange(NUM_BINS + 1) / NUM_BINS
    return pa.table(
        {
            "lo": edges[:-1],
            "hi": edges[1:],
            "n": sums.num_pairs.astype(np.int64),
            "conf": sums.prob / count,
            "acc": sums.label / count,
            "acc_low": acc_low,
            "acc_high": acc_high,
        }
    )


def wilson_interval(successes: FloatArray, count: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's (1927) 95 % score interval of a fraction, elementwise; (0, 1) where the count is 0.

    Library functions refuse the fractional successes that tied candidates give.
    """
    z = NormalDist().inv_cdf(0.975)
    centre = (successes + z**2 / 2) / (count + z**2)
    fraction = successes / np.maximum(count, 1)
    half_width = z / (count + z**2) * np.sqrt(count * fraction * (1 - fraction) + z**2 / 4)
    return np.maximum(centre - half_width, 0), np.minimum(centre + half_width, 1)


def fraction_interval(successes: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of one fraction."""
    low, high = wilson_interval(np.array(successes), np.array(count))
    return float(low), float(high)
