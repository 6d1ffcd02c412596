"""Do the questions at hand look like the pools that calibration, thresholds and sets were fitted on?

Every promise rests on that, and labels are not needed to notice many ways in which it fails. Three two-sample
Kolmogorov-Smirnov tests compare distributions over pools: of the best candidate's probability, of the entropy of the
softmax over the logits, and of the margin between the two best logits. With Bonferroni's correction a false alarm is
at most as probable as stated, if the questions are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field
from scipy.special import xlogy
from scipy.stats import ks_2samp

from icalib.core.component import Settings
from icalib.metrics.conformal import nonconformity
from icalib.metrics.pairs import FloatArray, PoolScores

FALSE_ALARM = 0.01
"""Probability of a warning about questions that are like the fitted pools."""


class ShiftTest(Settings):
    """The outcome of the tests; plain numbers."""

    p_value: float = Field(ge=0, le=1)
    """Smallest p-value times the number of tests: with exchangeable pools it is below u with probability u or less."""
    differs_in: str
    """The statistic with the smallest p-value."""
    num_questions: int
    num_pools: int
    """Pools that the questions were compared with."""

    @property
    def alarms(self) -> bool:
        """Whether the questions differ more than chance allows at the rate FALSE_ALARM."""
        return self.p_value < FALSE_ALARM


def shift_test(questions: PoolScores, fitted: PoolScores) -> ShiftTest:
    """Test whether the questions' pools and the fitted ones come from the same distribution.

    Only pools with the same numbers of candidates should be compared: these change all statistics.
    """
    return compare_statistics(pool_statistics(questions), pool_statistics(fitted))


def compare_statistics(questions: Mapping[str, FloatArray], fitted: Mapping[str, FloatArray]) -> ShiftTest:
    """Test the same, given the statistics of both: those of fitted pools are the same in all tests."""
    p_values = {
        name: float(ks_2samp(questions[name], values).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
        for name, values in fitted.items()
    }
    differs_in = min(p_values, key=lambda name: p_values[name])
    return ShiftTest(
        p_value=min(1.0, len(p_values) * p_values[differs_in]),
        differs_in=differs_in,
        num_questions=len(questions[differs_in]),
        num_pools=len(fitted[differs_in]),
    )


def pool_statistics(scores: PoolScores) -> dict[str, FloatArray]:
    """Return what is compared, one value for each pool [B]; pools have two candidates or more."""
    order = np.lexsort((-scores.logit, scores.pool))
    first, second = order[scores.offsets[:-1]], order[scores.offsets[:-1] + 1]
    share = 1 - nonconformity(scores)
    return {
        "top probability": np.maximum.reduceat(scores.prob, scores.offsets[:-1]),
        "entropy": -scores.pool_sum(xlogy(share, share)),
        "margin": scores.logit[first] - scores.logit[second],
    }
