"""The drift watch: its false-alarm rate is the stated one, and a change is found."""

from __future__ import annotations

import numpy as np
import pytest

from icalib.serving.drift import DriftWatch


def fed(watch: DriftWatch, scores: np.ndarray) -> DriftWatch:
    for score in scores.tolist():
        watch.add(score)
    return watch


@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_false_alarms_are_as_rare_as_stated(rate: float) -> None:
    rng = np.random.default_rng(0)
    trials = 400
    alarms = sum(
        fed(DriftWatch(rng.normal(size=100), window=50, false_alarm_rate=rate), rng.normal(size=50)).state.alarm
        for _ in range(trials)
    )
    assert alarms / trials <= rate + 3 * np.sqrt(rate * (1 - rate) / trials)


def test_ties_do_not_raise_false_alarms() -> None:
    rng = np.random.default_rng(1)
    watch = fed(
        DriftWatch(rng.integers(3, size=100).astype(float), window=50), rng.integers(3, size=1000).astype(float)
    )
    assert watch.state.windows == 20
    assert watch.state.alarms == 0


def test_a_shift_raises_the_alarm_and_its_end_clears_it() -> None:
    rng = np.random.default_rng(2)
    watch = fed(DriftWatch(rng.normal(size=300)), rng.normal(loc=1, size=200))
    assert watch.state.alarm
    assert watch.state.p_value is not None
    assert watch.state.p_value < 1e-6
    fed(watch, rng.normal(size=200))
    assert not watch.state.alarm
    assert (watch.state.windows, watch.state.alarms) == (2, 1)


def test_too_few_validation_pools_watch_nothing() -> None:
    watch = fed(DriftWatch(np.zeros(12)), np.ones(500))
    assert not watch.state.window_questions
    assert watch.state.windows == 0
