"""Split-conformal answer sets: enough candidates of a pool to contain the right one with a chosen probability.

The least ambiguous sets of Sadinle, Lei and Wasserman (2019): a candidate's nonconformity is 1 − s, s being the softmax
over its pool's logits, and the set contains those up to a quantile of right candidates' on calibration pools. The
promise needs exchangeable pools: not ones that chose the model, nor ones with other numbers of candidates. It is about
pools that have a right candidate; others can't be covered and are left out.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.component import Settings
from icalib.core.errors import DataError, SettingError
from icalib.metrics.pairs import FloatArray, PoolScores, pool_softmax


class ConformalThreshold(Settings):
    """A fitted threshold."""

    coverage: float = Field(gt=0, lt=1)
    """1 − α, the minimum probability that a set contains a right candidate."""
    nonconformity: float = Field(ge=0, le=1)
    """The largest nonconformity of a candidate in the set."""
    num_pools: int = Field(ge=1)
    """Pools it was fitted on."""


def fit_conformal(calibration: PoolScores, coverage: float) -> ConformalThreshold:
    """Fit the threshold: the ⌈(n + 1)(1 − α)⌉-th smallest nonconformity of right candidates over n pools.

    Of several right candidates the one with the smallest counts: a set contains at least one (Vovk et al. 2005). A
    SettingError says that the coverage is not between 0 and 1, a DataError that there are fewer than 1/α − 1 pools, for
    which only sets of all candidates reach it.
    """
    if not 0 < coverage < 1:
        raise SettingError(f"the coverage is {coverage:g}; expected a fraction between 0 and 1, e.g. 0.9.")
    of_right = np.where(calibration.label == 1, nonconformity(calibration), np.inf)
    of_pool = np.minimum.reduceat(of_right, calibration.offsets[:-1])[calibration.answerable]
    rank = math.ceil((len(of_pool) + 1) * coverage - 1e-9)  # 10 · 0.9 must not be above 9
    if rank > len(of_pool):
        needed = math.ceil(1 / (1 - coverage) - 1 - 1e-9)
        raise DataError(
            f"{len(of_pool)} pools are too few for answer sets with coverage {coverage:g}",
            f"Score at least {needed} pools with known labels, or ask for less coverage.",
        )
    limit = float(np.sort(of_pool)[rank - 1])
    return ConformalThreshold(coverage=coverage, nonconformity=limit, num_pools=len(of_pool))


def answer_sets(scores: PoolScores, threshold: ConformalThreshold) -> npt.NDArray[np.bool_]:
    """Return which candidates are in their pools' sets, [N]; the best one always is, so that no set is empty."""
    best = np.maximum.reduceat(scores.logit, scores.offsets[:-1])[scores.pool]
    return (nonconformity(scores) <= threshold.nonconformity) | (scores.logit == best)


def nonconformity(scores: PoolScores) -> FloatArray:
    """Return 1 − softmax over the logits of each pool, [N]."""
    return 1 - pool_softmax(scores.logit, scores.sizes())
