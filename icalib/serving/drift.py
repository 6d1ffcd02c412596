"""Watching whether the questions that are served are like those that the run was validated on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from icalib.metrics.pairs import FloatArray

WINDOW = 200
FALSE_ALARM_RATE = 0.01
_MIN_REFERENCE = 30


@dataclass(frozen=True)
class Drift:
    """State of a drift watch.

    Attributes:
        active: whether the run has enough validation pools to compare with.
        reference_pools: number of pools whose top scores are the reference.
        window: questions per test.
        false_alarm_rate: maximum probability that a window raises an alarm although nothing has changed.
        windows: completed windows.
        alarms: windows with an alarm.
        pending: questions of the current window.
        statistic: largest distance of the distribution functions, of the last completed window.
        p_value: of the last completed window.
        alarm: whether the last completed window raised an alarm.
    """

    active: bool
    reference_pools: int
    window: int
    false_alarm_rate: float
    windows: int = 0
    alarms: int = 0
    pending: int = 0
    statistic: float | None = None
    p_value: float | None = None
    alarm: bool = False

    def record(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


class DriftWatch:
    """Compares the best candidates' scores of every `window` questions with those of the validation pools.

    Each window is one two-sample Kolmogorov–Smirnov test, so that the probability of a false alarm is at most
    `false_alarm_rate` per window: one in window / false_alarm_rate questions on average. This holds over draws of
    both samples, for independent questions; ties make the test conservative.

    Args:
        reference: top scores [N] of the validation pools.
        window: questions per test.
        false_alarm_rate: of one test.
    """

    def __init__(
        self, reference: FloatArray, *, window: int = WINDOW, false_alarm_rate: float = FALSE_ALARM_RATE
    ) -> None:
        self._reference = np.sort(reference)
        self._scores: list[float] = []
        self.state = Drift(len(reference) >= _MIN_REFERENCE, len(reference), window, false_alarm_rate)

    def add(self, score: float) -> None:
        """Add the best candidate's score of a question that was served."""
        if not self.state.active:
            return
        self._scores.append(score)
        if len(self._scores) < self.state.window:
            self.state = replace(self.state, pending=len(self._scores))
            return
        statistic, p_value = map(float, ks_2samp(self._reference, self._scores, method="auto"))
        self._scores = []
        alarm = p_value <= self.state.false_alarm_rate
        self.state = replace(
            self.state,
            windows=self.state.windows + 1,
            alarms=self.state.alarms + alarm,
            pending=0,
            statistic=statistic,
            p_value=p_value,
            alarm=alarm,
        )
