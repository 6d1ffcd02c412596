"""Split-conformal answer sets: enough candidates of a pool to hold the right one with a chosen chance.

The least ambiguous sets of Sadinle, Lei and Wasserman (2019): a candidate's nonconformity is 1 − s, s being the
softmax over its pool's logits, and the set holds those within a quantile of what right candidates had on validation.
If validation and later pools are exchangeable, sets hold a right candidate with at least the chance asked for.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.component import Settings
from icalib.core.errors import DataError, SettingError
from icalib.metrics.pairs import FloatArray, PoolScores


class ConformalThreshold(Settings):
    """A fitted threshold; plain numbers that can be kept as JSON."""

    coverage: float = Field(gt=0, lt=1)
    """1 − α, the least chance that a set holds a right candidate."""
    nonconformity: float = Field(ge=0, le=1)
    """Candidates up to here belong to the set."""
    num_pools: int = Field(ge=1)
    """Validation pools it was fitted on."""


def fit_conformal(validation: PoolScores, coverage: float) -> ConformalThreshold:
    """The ⌈(n + 1)(1 − α)⌉-th smallest nonconformity of right candidates over n pools (ibid.; Vovk et al. 2005).

    Where a pool has several right candidates, the one of least nonconformity counts: sets hold one of them at least.

    Raises:
        SettingError: the coverage is not between 0 and 1.
        DataError: fewer than 1/α − 1 pools, with which only sets of all candidates would do.
    """
    if not 0 < coverage < 1:
        raise SettingError(f"the coverage is {coverage:g}; expected a share between 0 and 1, e.g. 0.9.")
    place = math.ceil((validation.num_pools + 1) * coverage - 1e-9)  # 10 · 0.9 must not be above 9
    if place > validation.num_pools:
        needed = math.ceil(1 / (1 - coverage) - 1 - 1e-9)
        raise DataError(
            f"{validation.num_pools} validation pools are too few for answer sets with coverage {coverage:g}",
            f"Score {needed} pools with known labels at least, or ask for less coverage.",
        )
    of_wrong = np.where(validation.label == 1, nonconformity(validation), np.inf)
    of_right = np.minimum.reduceat(of_wrong, validation.offsets[:-1])
    return ConformalThreshold(
        coverage=coverage, nonconformity=float(np.sort(of_right)[place - 1]), num_pools=validation.num_pools
    )


def answer_sets(scores: PoolScores, threshold: ConformalThreshold) -> npt.NDArray[np.bool_]:
    """Which candidates their pools' sets hold, [N]; each pool's best is always in, so that no set is empty."""
    best = np.maximum.reduceat(scores.logit, scores.offsets[:-1])[scores.pool]
    return (nonconformity(scores) <= threshold.nonconformity) | (scores.logit == best)


def nonconformity(scores: PoolScores) -> FloatArray:
    """1 − softmax over the logits of each pool, [N]."""
    best = np.maximum.reduceat(scores.logit, scores.offsets[:-1])
    weight = np.exp(scores.logit - best[scores.pool])
    return 1 - weight / scores.pool_sum(weight)[scores.pool]
