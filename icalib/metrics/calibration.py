"""Calibration errors, reliability table, Brier score and likelihood.

Unless said otherwise, `prob` and `label` are [N]: the probability that a pair is right, and whether it is. Labels
may be fractions (the probability of a hit among tied candidates).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from icalib.core.errors import SettingError
from icalib.metrics.pairs import FloatArray, IntArray

Labels = IntArray | FloatArray

NUM_BINS = 10
PENHA_NUM_BINS = 50
PROB_CLIP = 1e-7

RELIABILITY_SCHEMA = pa.schema(
    [
        ("lo", pa.float64()),
        ("hi", pa.float64()),
        ("n", pa.int64()),
        ("conf", pa.float64()),  # mean probability, NaN in an empty bin
        ("acc", pa.float64()),  # fraction of right pairs, NaN in an empty bin
        ("acc_low", pa.float64()),  # Wilson 95 % interval; (0, 1) in an empty bin
        ("acc_high", pa.float64()),
    ]
)


class BinSums(NamedTuple):
    """Sums over the pairs in each of M equal bins, [..., M] each; leading axes are pools or resamples."""

    num_pairs: FloatArray
    prob: FloatArray
    label: FloatArray


def bin_sums(prob: FloatArray, label: Labels, num_bins: int, group: IntArray | None = None) -> BinSums:
    """Return sums in bins min(⌊p M⌋, M − 1): [M], or [groups, M] where `group` [N] holds each pair's group.

    Raises:
        SettingError: fewer than one bin.
    """
    _check_num_bins(num_bins)
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


def debiased_ece_of(sums: BinSums, gap_variance: FloatArray) -> FloatArray:
    """Return the expected calibration error less an estimate of its bias, at least 0: [..., M] → [...].

    Noise in a bin never lowers |acc_b − conf_b| on average, so the ECE of few pairs is too large, even of a calibrated
    model. With normal noise around the measured gap g the bias is E|N(g, s²)| − |g| (Bröcker 2012; Kumar, Liang and Ma
    2019, who draw it), which is subtracted in closed form. It is too small where the true gap is 0, since g is not.

    Args:
        sums: see `bin_sums`.
        gap_variance: sampling variance of each bin's Σ(p − y), [..., M].
    """
    from scipy.special import ndtr

    gap = np.abs(sums.prob - sums.label)
    sd = np.sqrt(np.maximum(gap_variance, 0))
    z = np.divide(gap, sd, out=np.full_like(gap, 40.0), where=gap < 40.0 * sd)  # the bias is 0 beyond, to every digit
    bias = 2 * (sd * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) - gap * ndtr(-z))
    return np.maximum((gap - bias).sum(axis=-1), 0) / sums.num_pairs.sum(axis=-1)


def mce_of(sums: BinSums, min_count: int = 1) -> FloatArray:
    """Return the largest |acc_b − conf_b| of the bins with `min_count` pairs or more, else 0: [..., M] → [...]."""
    gap = np.abs(sums.prob - sums.label) / np.maximum(sums.num_pairs, 1)
    return np.where(sums.num_pairs >= min_count, gap, 0).max(axis=-1)


def ece(
    prob: FloatArray,
    label: Labels,
    *,
    num_bins: int | None = None,
    variant: Literal["standard", "penha2021"] = "standard",
) -> float:
    """Return the expected calibration error over bins of equal width (Naeini et al. 2015).

    Args:
        prob: [N].
        label: [N].
        num_bins: 10 unless given, 50 for `penha2021`.
        variant: `penha2021` is what the script of Penha and Hauff (2021) computes, to compare with their tables: the
            sum divided by the number of bins once more.

    Example:
        >>> prob, label = np.array([0.9, 0.8, 0.3]), np.array([1, 0, 0])
        >>> round(ece(prob, label), 3)
        0.4
    """
    if variant == "standard":
        return float(ece_of(bin_sums(prob, label, NUM_BINS if num_bins is None else num_bins)))
    num_bins = PENHA_NUM_BINS if num_bins is None else num_bins
    return float(ece_of(bin_sums(prob, label, num_bins))) / num_bins


def mce(prob: FloatArray, label: Labels, *, num_bins: int = NUM_BINS, min_count: int = 1) -> float:
    """Return the maximum calibration error over the bins with `min_count` pairs or more."""
    return float(mce_of(bin_sums(prob, label, num_bins), min_count))


def signed_gap(prob: FloatArray, label: Labels) -> float:
    """Return mean p − mean y, which is Σ (n_b / n)(conf_b − acc_b) for any bins; above 0 is over-confident."""
    return float(np.mean(prob) - np.mean(label))


def adaptive_ece(prob: FloatArray, label: Labels, *, num_bins: int = NUM_BINS) -> float:
    """Return the ECE over bins of equal count: pairs sorted by probability; the sizes of bins differ by at most one.

    Tied pairs at the edge of bins are split in proportion, so that their order has no effect.
    """
    return float(resampled_adaptive_ece(prob, label, np.ones((1, len(prob))), num_bins=num_bins)[0])


def resampled_adaptive_ece(
    prob: FloatArray, label: Labels, counts: FloatArray, *, num_bins: int = NUM_BINS
) -> FloatArray:
    """Return the adaptive ECE of samples that hold pair i `counts[r, i]` times: [R, N] → [R].

    Raises:
        SettingError: fewer than one bin.
    """
    _check_num_bins(num_bins)
    order = np.argsort(prob, kind="stable")
    gap, ascending = (prob - label)[order], prob[order]
    tied_from = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    errors = [_equal_count_error(gap, row[order], tied_from, num_bins) for row in counts]
    return np.array(errors)


def _equal_count_error(gap: FloatArray, count: FloatArray, tied_from: IntArray, num_bins: int) -> float:
    """Return the error from p − y, sorted by rising p, with the index of each distinct p's first pair."""
    total_count = np.concatenate([[0.0], np.cumsum(np.add.reduceat(count, tied_from))])
    total_gap = np.concatenate([[0.0], np.cumsum(np.add.reduceat(count * gap, tied_from))])
    size, larger = divmod(int(total_count[-1]), num_bins)
    edges = size * np.arange(num_bins + 1) + np.minimum(np.arange(num_bins + 1), larger)
    gap_at_edge = np.interp(edges, total_count, total_gap)
    return float(np.abs(np.diff(gap_at_edge)).sum() / total_count[-1])


def brier(prob: FloatArray, label: Labels) -> float:
    """Return the Brier score, mean (p − y)²."""
    return float(np.mean((prob - label) ** 2))


def brier_skill(brier_score: FloatArray, base_rate: FloatArray) -> FloatArray:
    """Return 1 − Brier / π(1 − π) with base rate π: 0 where every probability is π, 1 at best, NaN for π of 0 or 1."""
    reference = base_rate * (1 - base_rate)
    return 1 - np.divide(
        brier_score, reference, out=np.full(np.shape(reference), np.nan), where=np.asarray(reference) > 0
    )


def log_losses(prob: FloatArray, label: Labels) -> FloatArray:
    """Return the negative log-likelihood of each pair in nats, [N]; prob is clipped to [1e-7, 1 − 1e-7]."""
    clipped = np.clip(prob, PROB_CLIP, 1 - PROB_CLIP)
    right = label.astype(np.float64)
    return -(right * np.log(clipped) + (1 - right) * np.log1p(-clipped))


def nll(prob: FloatArray, label: Labels) -> float:
    """Return the mean negative log-likelihood in nats; prob is clipped to [1e-7, 1 − 1e-7]."""
    return float(np.mean(log_losses(prob, label)))


def nll_from_logits(logit: FloatArray, label: Labels) -> float:
    """Return the mean negative log-likelihood in nats of probabilities σ(logit), exact where they saturate."""
    return float(np.mean(np.logaddexp(0, logit) - label * logit))


def reliability_table(prob: FloatArray, label: Labels, *, num_bins: int = NUM_BINS) -> pa.Table:
    """Return the data of a reliability diagram: RELIABILITY_SCHEMA, one row for each bin."""
    sums = bin_sums(prob, label, num_bins)
    empty = sums.num_pairs == 0
    count = np.where(empty, 1, sums.num_pairs)
    acc_low, acc_high = wilson_interval(sums.label, sums.num_pairs)
    edges = np.arange(num_bins + 1) / num_bins
    columns = {
        "lo": edges[:-1],
        "hi": edges[1:],
        "n": sums.num_pairs.astype(np.int64),
        "conf": np.where(empty, np.nan, sums.prob / count),
        "acc": np.where(empty, np.nan, sums.label / count),
        "acc_low": acc_low,
        "acc_high": acc_high,
    }
    return pa.table(columns, schema=RELIABILITY_SCHEMA)


def wilson_interval(successes: FloatArray, count: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's (1927) score interval of a fraction, elementwise; (0, 1) where the count is 0.

    Library functions refuse the fractional successes that tied candidates give.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (successes + z**2 / 2) / (count + z**2)
    fraction = successes / np.maximum(count, 1)
    half_width = z / (count + z**2) * np.sqrt(count * fraction * (1 - fraction) + z**2 / 4)
    return np.maximum(centre - half_width, 0), np.minimum(centre + half_width, 1)


def _check_num_bins(num_bins: int) -> None:
    if num_bins < 1:
        raise SettingError(f"num_bins is {num_bins}; a calibration error needs at least 1 bin.")
