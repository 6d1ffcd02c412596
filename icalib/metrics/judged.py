"""Metrics of many pools from few that people judged and a judge's expectation of all: prediction-powered inference.

The estimate is that of PPI++ (Angelopoulos, Duchi and Zrnic 2023) for a mean, which with λ fitted by least squares is
the regression estimator of double sampling (Cochran 1977, chapter 12). Its normal interval covers too rarely with 30 to
100 judged pools (benchmarks/judged.py); here it is Wilson's, which suits proportions near 1, with Student's quantile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from icalib.metrics.metric import Metric
from icalib.metrics.pairs import FloatArray, PoolScores

_HELPS = 1.1  # variance without the judge, as a multiple of that with it


@dataclass(frozen=True)
class Estimate:
    """A mean over pools, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Inferred:
    """What judged pools and a judge say about a metric.

    Args:
        estimate: by both where the judge helps, else by the judged pools alone.
        alone: by the judged pools alone.
        helps: whether the judge is worth a tenth more judged pools, which a random one seldom seems to be.
        correlation: of the judge's expectations with the judged pools' values; 0 where either is constant.
        worth: how many judged pools would estimate as well without the judge.
        shift: standard errors between the judge's means over the judged pools and over all; a random sample seldom has
            more than 2.
    """

    estimate: Estimate
    alone: Estimate
    helps: bool
    correlation: float
    worth: float
    shift: float


def expected_values(metric: Metric, scores: PoolScores, prob_N: FloatArray) -> FloatArray:
    """Return a judge's expectation of a metric with values of single pools, [B].

    `prob_N` are its probabilities that each candidate is the right one; they add up to 1 in each pool.
    """
    assert metric.per_pool is not None
    index_N = np.arange(len(scores.logit)) - scores.offsets[scores.pool]
    expected_B = np.zeros(scores.num_pools)
    for index in range(int(index_N.max()) + 1):
        is_right_N = index_N == index
        value_B = metric.per_pool(replace(scores, label=is_right_N.astype(np.int64)))
        expected_B += scores.pool_sum(prob_N * is_right_N) * np.nan_to_num(value_B)  # NaN: fewer candidates
    return expected_B


def infer(value_J: FloatArray, judge_J: FloatArray, judge_B: FloatArray) -> Inferred:
    """Infer a metric, with values from 0 to 1, from J judged pools, a random sample of B.

    Args:
        value_J: their values; NaN for pools that don't count.
        judge_J, judge_B: the judge's expectations of them, and of all pools.
    """
    value_J, mean = _linearised(value_J)
    num_judged, num_pools = len(value_J), len(judge_B)
    judged_mean, all_mean = judge_J.mean(), judge_B.mean()
    value_error, judge_error = value_J - mean, judge_J - judged_mean
    s_yy, s_ff, s_yf = value_error @ value_error, judge_error @ judge_error, value_error @ judge_error
    has_slope = min(s_yy, s_ff) > 1e-12  # neither is constant
    slope = s_yf / s_ff if has_slope else 0.0  # λ
    distance = all_mean - judged_mean
    # Residuals vanish where judge and people happen to agree on all judged pools. One more pool with each value, about
    # which the judge says nothing, keeps the variance from doing so (as Agresti and Coull 1998 add to a proportion).
    added = (1 - mean) ** 2 + mean**2
    variance_alone = (s_yy + added) / (num_judged + 1) / num_judged
    residual = (s_yy - slope * s_yf + added) / num_judged  # with J + 2 pools and two coefficients
    leverage = distance**2 / s_ff if has_slope else 0.0
    variance = residual * (1 / num_judged + leverage) + slope**2 * judge_B.var(ddof=1) / num_pools
    right = (num_judged * mean + 1) / (num_judged + 2)
    spread = right * (1 - right)
    alone = _wilson(mean, float(spread / variance_alone), num_judged - 1)
    both = _wilson(mean + slope * distance, float(spread / variance), num_judged - 2)  # θ̂ = ȳ + λ(f̄_B − f̄_J)
    helps = slope > 0 and variance_alone > _HELPS * variance
    standard_error = judge_B.std(ddof=1) * np.sqrt(1 / num_judged - 1 / num_pools)
    return Inferred(
        estimate=both if helps else alone,
        alone=alone,
        helps=bool(helps),
        correlation=float(s_yf / np.sqrt(s_yy * s_ff)) if has_slope else 0.0,
        worth=float(num_judged * variance_alone / variance) if helps else num_judged,
        shift=float(abs(distance) / standard_error) if standard_error > 0 else 0.0,
    )


def _linearised(value_J: FloatArray) -> tuple[FloatArray, float]:
    """Return values of all pools with the mean of those that count, and its variance: a ratio's linearisation."""
    counts = ~np.isnan(value_J)
    mean = float(value_J[counts].mean())
    return mean + np.where(counts, value_J - mean, 0.0) / counts.mean(), mean


def _wilson(value: float, number: float, freedom: int) -> Estimate:
    """Return Wilson's (1927) interval of a proportion with an effective number of pools, and Student's quantile.

    The number, spread / variance, carries it over to other estimates and values (Franco et al. 2019).
    """
    from scipy.special import stdtrit

    t = float(stdtrit(freedom, (1 + 0.95) / 2))
    value = float(np.clip(value, 0, 1))
    center = value + t**2 / (2 * number)
    half = t * np.sqrt(value * (1 - value) / number + (t / (2 * number)) ** 2)
    low, high = (center + np.array([-half, half])) / (1 + t**2 / number)
    return Estimate(value, float(low), float(high))
