"""Watching whether the questions that are served are like those that the run was validated on."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import ks_2samp

from icalib.metrics.pairs import FloatArray

_MIN_REFERENCE = 30


@dataclass
class Drift:
    """What a drift watch has found.

    Attributes:
        reference_pools: number of validation pools.
        window_questions: questions per test; 0 if there are too few pools to compare with.
        false_alarm_rate: maximum probability that a window raises an alarm although nothing has changed.
        windows: completed windows.
        alarms: windows with an alarm.
        alarm: whether the last completed window raised an alarm.
        p_value: of the last completed window.
    """

    reference_pools: int
    window_questions: int
    false_alarm_rate: float
    windows: int = 0
    alarms: int = 0
    alarm: bool = False
    p_value: float | None = None


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

    def __init__(self, reference: FloatArray, *, window: int = 200, false_alarm_rate: float = 0.01) -> None:
        self._reference = reference
        self._scores: list[float] = []
        self.state = Drift(len(reference), window if len(reference) >= _MIN_REFERENCE else 0, false_alarm_rate)

    def add(self, score: float) -> None:
        """Add the best candidate's score of a question that was served."""
        state = self.state
        if not state.window_questions:
            return
        self._scores.append(score)
        if len(self._scores) == state.window_questions:
            _, state.p_value = map(float, ks_2samp(self._reference, self._scores))
            state.alarm = state.p_value <= state.false_alarm_rate
            state.windows += 1
            state.alarms += state.alarm
            self._scores = []
