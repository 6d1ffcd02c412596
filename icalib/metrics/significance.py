"""Intervals over pools, paired tests and Holm's correction.

The pool is the unit, since the candidates of one context are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.metrics.pairs import FloatArray, IntArray

_DRAWS_AT_ONCE = 250_000
_LEVEL_ENDS = ((1 - 0.95) / 2, (1 + 0.95) / 2)  # quantiles of 95 % intervals


class Interval(NamedTuple):
    """Ends of an interval; NaN if undefined."""

    low: float
    high: float


class PairedTest(NamedTuple):
    """Mean difference first − second, and the two-sided p-value that the two are exchangeable."""

    difference: float
    p_value: float


def bootstrap(
    statistics: Callable[[IntArray], Mapping[str, FloatArray]], num_pools: int, *, seed: int, num_bootstrap: int = 1000
) -> dict[str, FloatArray]:
    """Return the values of statistics on `num_bootstrap` resamples of B = `num_pools` pools as wholes (Efron 1979).

    `statistics` maps resamples, [R, B] indices of pools drawn with replacement, to named values, [R] each.
    """
    rng = np.random.default_rng(child_seed(seed, "bootstrap"))
    chunk = max(1, _DRAWS_AT_ONCE // num_pools)
    parts = [
        statistics(rng.integers(num_pools, size=(min(chunk, num_bootstrap - done), num_pools)))
        for done in range(0, num_bootstrap, chunk)
    ]
    names = parts[0] if parts else ()
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def percentile_interval(values: FloatArray) -> Interval:
    """Return the interval that holds 95 % of a statistic's values on resamples; NaN are ignored."""
    values = values[~np.isnan(values)]
    if not values.size:
        return Interval(np.nan, np.nan)
    low, high = np.quantile(values, _LEVEL_ENDS)
    return Interval(float(low), float(high))


def mean_interval(values: FloatArray) -> Interval:
    """Return the 95 % interval of a mean of B values from 0 to 1; NaN marks pools that don't count.

    Percentiles of resamples are too close together where nearly all values are 1, and the same where all are.
    """
    if np.isnan(values).all():
        return Interval(np.nan, np.nan)
    values, mean = linearised(values)
    return wilson(mean, spread(mean, len(values)) / mean_variance(values, mean), max(len(values) - 1, 1))


def linearised(values: FloatArray) -> tuple[FloatArray, float]:
    """Return values of all pools with the mean of those that count, and its variance: a ratio's linearisation."""
    counts = ~np.isnan(values)
    mean = float(values[counts].mean())
    return mean + np.where(counts, values - mean, 0.0) / counts.mean(), mean


def one_more(mean: float) -> float:
    """Return the squares that one more pool with each value, 0 and 1, adds to those of errors.

    They keep a variance from vanishing where all pools agree (as Agresti and Coull 1998 add to a proportion).
    """
    return (1 - mean) ** 2 + mean**2


def mean_variance(values: FloatArray, mean: float) -> float:
    """Return the variance of a mean of values [B]."""
    error = values - mean
    return float(error @ error + one_more(mean)) / (len(values) + 1) / len(values)


def spread(mean: float, number: int) -> float:
    """Return the variance of single hits of which a fraction `mean` of a number is seen, with one more of each."""
    right = (number * mean + 1) / (number + 2)
    return right * (1 - right)


def wilson(value: float, number: float, freedom: int) -> Interval:
    """Return Wilson's (1927) interval of a proportion with an effective number of pools, and Student's quantile.

    The number, spread / variance, carries it over to other estimates and values (Franco et al. 2019).
    """
    from scipy.special import stdtrit

    t = float(stdtrit(freedom, _LEVEL_ENDS[1]))
    center = value + t**2 / (2 * number)
    half = t * np.sqrt(value * (1 - value) / number + (t / (2 * number)) ** 2)
    low, high = (center + np.array([-half, half])) / (1 + t**2 / number)
    return Interval(max(float(low), 0.0), min(float(high), 1.0))


def gap_interval(values: FloatArray, estimate: float, *, bounds: tuple[float, float]) -> Interval:
    """Return a 95 % interval around an estimate θ̂ ≥ 0 of absolute gaps, which is biased upwards; clipped to its range.

    Percentiles of resamples contain the bias twice and can miss the truth every time. A basic interval subtracts what
    resampling adds (Davison and Hinkley 1997, Eq. 5.6): to |g| as much as sampling does where gaps are large, but too
    little where they are small; to g² always as much, its variance. The upper end is the basic one of θ̂, the lower one
    that of θ̂², which is lower. The interval need not contain the estimate. NaN are ignored.
    """
    low, high = percentile_interval(values)
    lower = np.sqrt(np.maximum(2 * estimate**2 - high**2, 0))
    return Interval(*np.clip([lower, 2 * estimate - low], *bounds).tolist())


def paired_permutation_test(
    first: FloatArray, second: FloatArray, *, seed: int, num_permutations: int = 9999
) -> PairedTest:
    """Test the mean difference of two runs' values over the same pools, [B] each, by permutation, two-sided.

    Each pool's two values are swapped at random; with few pools all 2^B ways are enumerated, so p is exact. A DataError
    says that the runs differ in their number of pools, or that there are fewer than two.
    """
    from scipy import stats

    if first.shape != second.shape or len(first) < 2:
        raise DataError(
            f"the first run has values of {len(first)} pools and the second of {len(second)}; a paired test "
            "needs the same pools in both, at least two",
            "Evaluate both runs on the same pools.",
        )
    difference = first - second
    result = stats.permutation_test(
        (difference,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=num_permutations,
        batch=max(1, _DRAWS_AT_ONCE // len(difference)),
        rng=np.random.default_rng(child_seed(seed, "permutation")),
    )
    return PairedTest(float(difference.mean()), float(result.pvalue))


def paired_test(first: FloatArray, second: FloatArray, *, seed: int) -> PairedTest:
    """Test the mean difference of two methods, whose runs have values over the same pools, [S, B] each: a run a seed.

    The p-value is the larger one of two: of `paired_permutation_test` of the means over seeds, which is about these
    very models; and, where a method has several seeds, of a t test whose variance is that over pools and that between
    seeds (Satterthwaite 1946), which is about the methods. Errors are those of `paired_permutation_test`.
    """
    from scipy import stats

    pools = paired_permutation_test(first.mean(axis=0), second.mean(axis=0), seed=seed)
    difference = first.mean(axis=0) - second.mean(axis=0)
    terms = [(float(difference.var(ddof=1)) / len(difference), len(difference) - 1)]  # of the variance, with its df
    terms += [
        (float(runs.mean(axis=1).var(ddof=1)) / len(runs), len(runs) - 1) for runs in (first, second) if len(runs) > 1
    ]
    variance = sum(term for term, _ in terms)
    if len(terms) == 1 or not variance:
        return pools
    freedom = variance**2 / sum(term**2 / df for term, df in terms)
    p_value = 2 * float(stats.t.sf(abs(pools.difference) / np.sqrt(variance), freedom))
    return pools._replace(p_value=max(pools.p_value, p_value))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of a family adjusted by Holm's (1979) step-down method, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return adjusted.tolist()
