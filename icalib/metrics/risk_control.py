"""Risk control: which pools may be answered so that, with high probability, few answers are wrong.

Learn then Test (Angelopoulos et al. 2021) for the selective risk R(t): the fraction of wrong answers if a pool is
answered where the probability of its best candidate is at least t. Of n independent pools above t that have chosen
nothing, the number of wrong answers is Binomial(n, R(t)), so P(Bin(n, α) ≤ wrong) is an exact p-value of R(t) > α.
Thresholds are tested in a fixed sequence: the first and the order come from other pools, and testing ends at the first
threshold that isn't rejected. Then all rejected thresholds have R(t) ≤ α with probability 1 − δ, without any assumption
on the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import bdtr

from icalib.core.errors import DataError, SettingError
from icalib.metrics.pairs import FloatArray
from icalib.metrics.ranking import TopCandidate

_NUM_THRESHOLDS = 100


@dataclass(frozen=True)
class RiskControl:
    """The outcome of the tests."""

    max_error: float  # α, the largest fraction of wrong answers among the answered pools
    confidence: float  # 1 − δ, over the draw of the pools that it was tested on
    threshold: float | None  # answer pools whose best candidate has this probability or more; None: no promise
    num_pools: int  # that it was tested on
    num_answered: int  # of these, above the threshold; without one, above the first that was tested
    num_wrong: int  # of the answered ones
    num_needed: int | None = None  # without a threshold, about how many pools it takes; None if more would not help

    @property
    def coverage(self) -> float:
        """Fraction of the pools that are above the threshold."""
        return self.num_answered / self.num_pools

    @property
    def refusal(self) -> str:
        """Why there is no threshold."""
        found = f"{self.num_pools} test pools can't promise at most {100 * self.max_error:g}% wrong answers"
        if self.num_needed is None:
            return (
                f"{found}, nor can more: of the most confident answers on validation too many are wrong, or too few "
                "are known"
            )
        return f"{found}; about {self.num_needed:,} would be needed"


def control_risk(tested: TopCandidate, others: TopCandidate, max_error: float, confidence: float = 0.9) -> RiskControl:
    """Find the threshold that answers most pools and keeps the promise; a tie of right and wrong counts as wrong.

    `tested` pools have chosen nothing, neither the model nor the thresholds. `others`, e.g. validation, propose
    thresholds and the first one to test: they need not be like the tested ones for the promise to hold, only for it to
    answer many. A SettingError says that α or 1 − δ is not between 0 and 1, a DataError that there are no pools, or
    that a probability is NaN.
    """
    for name, value in (("largest fraction of wrong answers", max_error), ("confidence", confidence)):
        if not 0 < value < 1:
            raise SettingError(f"the {name} is {value:g}; expected a fraction between 0 and 1, e.g. 0.1 and 0.9.")
    if not tested.prob.size or np.isnan(tested.prob).any():
        raise DataError(
            f"no promise can be tested on {tested.prob.size} pools, {int(np.isnan(tested.prob).sum())} of them "
            "without a probability",
            "Test it on pools that are scored and labelled.",
            field="prob",
        )
    thresholds = _thresholds(others.prob)
    fraction, risk = _expected(others, thresholds)
    above = tested.prob[:, None] >= thresholds
    answered = above.sum(axis=0)
    wrong = (above & (tested.hit[:, None] < 1)).sum(axis=0)
    first = int(np.argmax((max_error - risk) * np.sqrt(fraction)))  # where the expected p-value is smallest
    rejected = bdtr(wrong[first:], answered[first:], max_error) <= 1 - confidence + 1e-12
    num_rejected = int(np.argmin(rejected)) if not rejected.all() else len(rejected)
    last = first + max(num_rejected - 1, 0)
    num_pools = len(tested.prob)
    return RiskControl(
        max_error=max_error,
        confidence=confidence,
        threshold=float(thresholds[last]) if num_rejected else None,
        num_pools=num_pools,
        num_answered=int(answered[last]),
        num_wrong=int(wrong[last]),
        num_needed=None
        if num_rejected
        else _num_needed(float(fraction[first]), float(risk[first]), max_error, confidence, num_pools),
    )


def _thresholds(prob: FloatArray) -> FloatArray:
    """Return falling thresholds that answer 1 %, 2 % … of the pools."""
    counts = np.ceil(np.arange(1, _NUM_THRESHOLDS + 1) / _NUM_THRESHOLDS * len(prob) - 1e-9).astype(np.int64)
    return np.unique(np.sort(prob)[-counts])[::-1]


def _expected(others: TopCandidate, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the fraction that each threshold answers, and the fraction of wrong answers (Jeffreys' estimate)."""
    above = others.prob[:, None] >= thresholds
    answered = above.sum(axis=0)
    wrong = (above * (1 - others.hit)[:, None]).sum(axis=0)
    return answered / len(others.prob), (wrong + 0.5) / (answered + 1)


def _num_needed(fraction: float, risk: float, max_error: float, confidence: float, num_pools: int) -> int | None:
    """Return about how many pools make a threshold's p-value δ or less in four of five draws, if `risk` is its risk.

    The normal approximation of the test's power, and at least as many as a test without any wrong answer needs.
    """
    if risk >= max_error:
        return None
    level, power = NormalDist().inv_cdf(confidence), NormalDist().inv_cdf(0.8)
    spread = level * math.sqrt(max_error * (1 - max_error)) + power * math.sqrt(risk * (1 - risk))
    answered = max((spread / (max_error - risk)) ** 2, math.log(1 - confidence) / math.log(1 - max_error))
    needed = max(answered / fraction, num_pools + 1)
    digits = 10 ** max(math.floor(math.log10(needed)) - 1, 0)
    return math.ceil(needed / digits) * digits
