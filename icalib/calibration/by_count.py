"""Probabilities for pools with another number of candidates than those of validation.

Whether a pair is right depends on how many others there are to choose from, its score does not: with C − 1 wrong
candidates from the same source, right and wrong pairs have the scores that they have in validation, and there are
C − 1 wrong ones for the right one (C − R, if pools have R right ones). So validation's pairs stand for those of any C
if wrong ones count C − R times over their number in the pool. A slope and an offset (Platt) are fitted with these
weights: the offset is the shift of the prior odds plus what calibration lacked in validation.
"""

from __future__ import annotations

import numpy as np

from icalib.calibration.affine_fit import fit_affine
from icalib.calibration.fitted import AffineMap
from icalib.core.errors import DataError
from icalib.metrics.pairs import FloatArray, PoolScores


def fit_for_count(validation: PoolScores, num_candidates: int) -> AffineMap:
    """Fit the map from logits to probabilities in pools of `num_candidates`, as many of them right as in validation.

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
    return fit_affine(validation.logit, validation.label, weight)


def count_weights(scores: PoolScores, num_candidates: int) -> FloatArray:
    """Return weights [N] with which each pool stands for one of `num_candidates`, with as many right ones.

    A pool's weights sum to `num_candidates`; its right candidates weigh 1 each, but leave 1 for a wrong one. Pools
    without candidates of both kinds weigh nothing.
    """
    num_right = scores.pool_sum(scores.label)
    num_wrong = scores.sizes() - num_right
    counted = (num_right > 0) & (num_wrong > 0)
    right = np.minimum(num_right, num_candidates - 1)
    of_right = np.divide(right, num_right, out=np.zeros_like(num_right), where=counted)
    of_wrong = np.divide(num_candidates - right, num_wrong, out=np.zeros_like(num_right), where=counted)
    return np.where(scores.label == 1, of_right[scores.pool], of_wrong[scores.pool])
