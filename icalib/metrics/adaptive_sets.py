"""Split-conformal answer sets for pools of any size.

A candidate's share of its pool's softmax shrinks as the pool grows: a threshold on it that was fitted on pools of ten
does not hold for pools of twenty. Adaptive sets (Romano, Sesia and Candès 2020) compare what is alike in pools of any
size: a candidate's score is the softmax mass of those before it in the ranking, plus a random fraction of its own.
If the softmax is calibrated, this score of the right candidate is uniform in every pool; so that it nearly is, logits
are first multiplied by a slope that other pools have fitted.

For pools that are no larger than the calibration pools, these are cut to the same size (see `sub_pools`): sets then
have their coverage whatever the model, if wrong candidates are exchangeable. For larger ones it rests on the softmax.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.optimize import minimize_scalar

from icalib.core.component import Settings
from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.metrics.conformal import Contains, conformal_quantile, nonconformity, right_scores
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.sub_pools import sub_pools

_LARGEST_LOG_SLOPE = 7.0


class AdaptiveThreshold(Settings):
    """A fitted threshold for pools of one size; plain numbers."""

    coverage: float = Field(gt=0, lt=1)
    """1 − α, the minimum probability that a set contains a right candidate."""
    mass: float = Field(ge=0, le=1)
    """The largest score of a candidate in the set."""
    slope: float = Field(gt=0)
    """Logits are multiplied by it."""
    num_pools: int = Field(ge=1)
    """Pools it was fitted on."""
    num_candidates: int = Field(ge=1)
    """Largest size of these; for pools that are larger the coverage rests on the softmax."""


def fit_adaptive(
    calibration: PoolScores, size: int, coverage: float, *, slope: float, seed: int, contains: Contains = "one"
) -> AdaptiveThreshold:
    """Fit the threshold for pools of `size` candidates.

    Args:
        calibration: pools that have chosen nothing; those without a right candidate don't count.
        size: number of candidates of the pools that need sets.
        coverage: 1 − α.
        slope: see `fit_slope`; fitted on other pools.
        seed: determines which wrong candidates are left out, and the random fractions.
        contains: what the sets promise about pools with several right candidates.

    Raises:
        SettingError, DataError: see `conformal_quantile`.
    """
    largest = int(calibration.sizes().max())
    alike = sub_pools(calibration, min(size, largest), seed=seed)
    of_right = right_scores(alike, mass_scores(alike, slope, seed=seed), contains)
    return AdaptiveThreshold(
        coverage=coverage,
        mass=min(conformal_quantile(of_right, coverage), 1.0),
        slope=slope,
        num_pools=len(of_right),
        num_candidates=min(size, largest),
    )


def adaptive_sets(scores: PoolScores, threshold: AdaptiveThreshold, *, seed: int) -> npt.NDArray[np.bool_]:
    """Return which candidates are in their pools' sets, [N]; the best one always is, so that no set is empty."""
    best = np.maximum.reduceat(scores.logit, scores.offsets[:-1])[scores.pool]
    return (mass_scores(scores, threshold.slope, seed=seed) <= threshold.mass) | (scores.logit == best)


def mass_scores(scores: PoolScores, slope: float, *, seed: int) -> FloatArray:
    """Return the softmax mass before each candidate plus a fraction of its own, [N]; one random fraction for a pool.

    Candidates with equal logits share their mass: none is before the other. The fraction is drawn from `seed` and the
    pool's logits alone: a pool has the same scores alone and among others, and different pools have different draws.
    """
    share = 1 - nonconformity(_scaled(scores, slope))
    order = np.lexsort((-scores.logit, scores.pool))
    pool, logit, ordered = scores.pool[order], scores.logit[order], share[order]
    before = np.concatenate([[0.0], np.cumsum(ordered)])
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(pool) != 0) | (logit[1:] != logit[:-1])]))
    ends = np.append(starts[1:], len(order))
    fraction = _fractions(scores, seed)[pool[starts]]
    of_block = before[starts] - before[scores.offsets[pool[starts]]] + fraction * (before[ends] - before[starts])
    found = np.empty(len(order))
    found[order] = np.repeat(of_block, ends - starts)
    return np.clip(found, 0, 1)


def _fractions(scores: PoolScores, seed: int) -> FloatArray:
    """Return a number between 0 and 1 for each pool [B]; rounding errors of logits hardly ever change it."""
    rounded = np.round(scores.logit, 2) + 0.0  # no negative zeros
    ordered = rounded[np.lexsort((rounded, scores.pool))]
    return np.array([child_seed(seed, *map(str, logits)) for logits in scores.split(ordered)]) / 2**63


def fit_slope(pools: PoolScores) -> float:
    """Return the factor of the logits with which the softmax over each pool is most likely to choose right candidates.

    Raises:
        DataError: no pool has both a right and a wrong candidate.
    """
    num_right = pools.pool_sum(pools.label)
    if not ((num_right > 0) & (num_right < pools.sizes())).any():
        raise DataError(
            f"no slope can be fitted on {pools.num_pools} pools: none has a right and a wrong candidate",
            "Fit it on scored pools with right and wrong candidates.",
            field="label",
        )

    def nll(log_slope: float) -> float:
        share = 1 - nonconformity(_scaled(pools, float(np.exp(log_slope))))
        of_right = pools.pool_sum(share * pools.label)[num_right > 0]
        return -float(np.log(np.maximum(of_right, np.finfo(np.float64).tiny)).mean())

    best: Any = minimize_scalar(nll, bounds=(-_LARGEST_LOG_SLOPE, _LARGEST_LOG_SLOPE), method="bounded")
    return float(np.exp(best.x))


def _scaled(scores: PoolScores, slope: float) -> PoolScores:
    return replace(scores, logit=slope * scores.logit)
