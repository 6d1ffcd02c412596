"""The probability that none of a pool's candidates is right, from the pool's sorted logits.

A logistic regression on six statistics of a pool, fitted on validation pools with and without a right candidate. Three
of them are the confidences of MTEB's abstention metrics: maximum, standard deviation, first difference (arXiv
2402.12997, whose authors find a regression on all sorted scores better). The others are the level of the logits and how
many candidates compete. None depends on the order of the candidates, and a pool may have any number of them.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat, PositiveFloat
from scipy.special import expit

from icalib.core.component import Settings
from icalib.core.errors import DataError
from icalib.metrics.pairs import FloatArray, IntArray, pool_softmax

MIN_POOLS = 5  # minimum number of validation pools with a right candidate, and of those without
FEATURES = ("max", "margin", "std", "level", "entropy", "log_sum_exp")  # columns of `pool_features`
_ONE_EACH = Field(min_length=len(FEATURES), max_length=len(FEATURES))
Statistics = Annotated[tuple[FiniteFloat, ...], _ONE_EACH]


def pool_features(logit_N: FloatArray, offsets: IntArray) -> FloatArray:
    """Return six statistics of each pool's logits f, sorted from best to worst: [B, 6].

    max: f₁. margin: f₁ − f₂. std: their standard deviation. level: the mean of all but the first. entropy: that of the
    softmax over the pool, divided by ln C. log_sum_exp: ln Σ eᶠ − ln C. With a single candidate, margin, std and
    entropy are 0 and the level is f₁. Pool b's logits are `offsets[b]:offsets[b + 1]`.
    """
    sizes = np.diff(offsets)
    pool = np.repeat(np.arange(len(sizes)), sizes)
    down = logit_N[np.lexsort((-logit_N, pool))]
    starts = offsets[:-1]
    first = down[starts]
    second = np.where(sizes > 1, down[np.minimum(starts + 1, len(down) - 1)], first)
    total = np.add.reduceat(down, starts)
    mean = total / sizes
    others = np.where(sizes > 1, (total - first) / np.maximum(sizes - 1, 1), first)
    deviation = np.sqrt(np.add.reduceat((down - mean[pool]) ** 2, starts) / sizes)
    share = pool_softmax(down, sizes)
    surprise = -share * np.log(np.where(share > 0, share, 1.0))
    entropy = np.add.reduceat(surprise, starts) / np.log(np.maximum(sizes, 2))
    log_sum_exp = first + np.log(np.add.reduceat(np.exp(down - first[pool]), starts)) - np.log(sizes)
    return np.column_stack([first, first - second, deviation, others, entropy, log_sum_exp])


class NoneOfThese(Settings):
    """A fitted p_none; plain numbers that are saved as JSON."""

    means: Statistics  # of each statistic on the validation pools
    scales: Annotated[tuple[Annotated[PositiveFloat, FiniteFloat], ...], _ONE_EACH]  # its standard deviation on them
    weights: Statistics  # its weight in the logit of p_none, after standardisation
    offset: FiniteFloat  # logit of p_none where all statistics are average
    num_answerable: int = Field(ge=1)  # validation pools with a right candidate
    num_unanswerable: int = Field(ge=1)  # validation pools without one

    def p_none(self, logit_N: FloatArray, offsets: IntArray) -> FloatArray:
        """Return the probability that no candidate is right, [B]; arguments as for `pool_features`."""
        standard = (pool_features(logit_N, offsets) - np.array(self.means)) / np.array(self.scales)
        return expit(standard @ np.array(self.weights) + self.offset)


def with_singles(p_none_P: FloatArray, prob_N: FloatArray, sizes_P: IntArray) -> FloatArray:
    """Return p_none [P], where that of a pool of one candidate is 1 − its probability as a pair (`prob_N`).

    Margin, deviation and entropy of one candidate are 0 by definition, far from those that p_none was fitted on.
    """
    return np.where(sizes_P > 1, p_none_P, 1 - prob_N[np.cumsum(sizes_P) - sizes_P])


def fit_none_of_these(logit_N: FloatArray, offsets: IntArray, answerable: npt.NDArray[np.bool_]) -> NoneOfThese:
    """Fit p_none by logistic regression with the penalty ½‖w‖² on standardised statistics of B validation pools.

    These must be drawn like later pools: the mean p_none on them is their fraction without a right candidate.
    """
    from sklearn.linear_model import LogisticRegression  # slow to import, and predictions don't fit

    num_answerable = int(answerable.sum())
    num_unanswerable = len(answerable) - num_answerable
    if min(num_answerable, num_unanswerable) < MIN_POOLS or not np.isfinite(logit_N).all():
        raise DataError(
            f"p_none can't be fitted on {num_answerable} pools with a right candidate and {num_unanswerable} without, "
            f"{int((~np.isfinite(logit_N)).sum())} of their scores not finite",
            f"Score {MIN_POOLS} or more validation pools of each kind.",
            field="label",
        )
    features = pool_features(logit_N, offsets)
    means, scales = features.mean(axis=0), features.std(axis=0)
    scales = np.where(scales > 1e-9 * np.maximum(1.0, np.abs(means)), scales, 1.0)  # e.g. entropies of equal logits
    standard = (features - means) / scales
    fitted = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(standard, ~answerable)
    return NoneOfThese(
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(fitted.coef_[0].tolist()),
        offset=float(fitted.intercept_[0]),
        num_answerable=num_answerable,
        num_unanswerable=num_unanswerable,
    )
