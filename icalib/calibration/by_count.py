"""Probabilities for pools with another number of candidates than those of validation.

Whether a pair is right depends on how many others there are to choose from, its score does not: with C − 1 wrong
candidates from the same source, right and wrong pairs have the scores that they have in validation, and there are
C − 1 wrong ones for each right one. So validation's pairs stand for those of any C if wrong ones count (C − 1) times
over their number in the pool. A slope and an offset (Platt) are fitted with these weights: the offset is the shift of
the prior odds plus what calibration lacked in validation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import DataError
from icalib.metrics.pairs import FloatArray, PoolScores

_LARGEST_LOG_SLOPE = 15.0


def fit_for_count(validation: PoolScores, num_candidates: int) -> AffineMap:
    """Fit the map from logits to probabilities in pools of `num_candidates`, one of them right.

    Args:
        validation: scored pools with known labels, of any sizes; pools without a wrong candidate don't count.
        num_candidates: 2 or more.

    Raises:
        DataError: there are no wrong candidates, or a score is not finite.
    """
    weight = count_weights(validation, num_candidates)
    if not weight.any() or not np.isfinite(validation.logit).all():
        raise DataError(
            f"no probabilities for {num_candidates} candidates can be fitted on {validation.num_pools} pools, "
            f"{int((~np.isfinite(validation.logit)).sum())} of their pairs without a finite score",
            "Fit them on scored pools with right and wrong candidates.",
            field="logit",
        )
    is_right = validation.label == 1
    right, wrong = float(weight[is_right].sum()), float(weight[~is_right].sum())
    target = np.where(is_right, (right + 1) / (right + 2), 1 / (wrong + 2))  # smoothed as in Platt (1999)
    mean, scale = float(validation.logit.mean()), float(validation.logit.std()) or 1.0
    f = (validation.logit - mean) / scale
    weight = weight / weight.sum()

    def nll_and_gradient(parameters: FloatArray) -> tuple[float, FloatArray]:
        slope, offset = np.exp(parameters[0]), parameters[1]
        z = slope * f + offset
        residual = weight * (expit(z) - target)
        nll = float(weight @ (np.logaddexp(0, z) - target * z))
        return nll, np.array([slope * (residual @ f), residual.sum()])

    best: Any = minimize(
        nll_and_gradient,
        np.array([0.0, logit(weight @ target)]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_LARGEST_LOG_SLOPE, _LARGEST_LOG_SLOPE), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    slope = float(np.exp(best.x[0])) / scale
    return AffineMap(slope=slope, offset=float(best.x[1]) - slope * mean)


def count_weights(scores: PoolScores, num_candidates: int) -> FloatArray:
    """Return weights [N] with which each pool stands for one of `num_candidates`, one of them right.

    The right candidates of a pool weigh 1 together, the wrong ones `num_candidates` − 1; pools without candidates of
    both kinds weigh nothing.
    """
    num_right = scores.pool_sum(scores.label)
    num_wrong = scores.sizes() - num_right
    counted = (num_right > 0) & (num_wrong > 0)
    of_right = np.divide(1.0, num_right, out=np.zeros_like(num_right), where=counted)
    of_wrong = np.divide(num_candidates - 1.0, num_wrong, out=np.zeros_like(num_right), where=counted)
    return np.where(scores.label == 1, of_right[scores.pool], of_wrong[scores.pool])
