"""Which step of a trial an epoch is."""

from __future__ import annotations

from typing import Any

import pytest

from icalib.core.errors import Abandoned
from icalib.core.events import EpochFinished
from icalib.sweeps.sweep import EpochReports


class Told:
    """Stands in for `Rungs`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.figures: dict[int, float] = {}
        self._stop_at = stop_at

    def report(self, step: int, value: float) -> None:
        assert step not in self.figures  # an epoch is told once
        self.figures[step] = value
        if step == self._stop_at:
            raise Abandoned("the others are better")


def curve(*values: float) -> list[dict[str, Any]]:
    return [
        {"epoch": epoch, "tag": tag, "value": value}
        for epoch, f1 in enumerate(values, 1)
        for tag, value in (("class/F1", f1), ("cal/ECE", 0.5))
    ]


def test_each_epoch_is_a_step_with_the_best_so_far_and_early_stopping_shifts_none() -> None:
    told = Told()
    reports = EpochReports(told, "F1", "maximize", range(1, 6))  # pyright: ignore[reportArgumentType]
    reports(EpochFinished("teacher", 3, ()))
    for epochs in (curve(0.2), curve(0.2, 0.1), curve(0.2, 0.1)):  # it stopped early; told again at its end
        reports(EpochFinished("teacher", 3, epochs))
    reports(EpochFinished("round-1/student", 2, curve(0.3, 0.4)))
    assert told.figures == {1: 0.2, 2: 0.2, 4: 0.3, 5: 0.4}


def test_a_stopped_trial_begins_no_other_training() -> None:
    reports = EpochReports(Told(stop_at=1), "F1", "maximize", range(1, 5))  # pyright: ignore[reportArgumentType]
    with pytest.raises(Abandoned):
        reports(EpochFinished("teacher", 2, curve(0.1)))
    with pytest.raises(Abandoned):
        reports(EpochFinished("member-1/teacher", 2, ()))


@pytest.mark.parametrize(("metric", "is_measured"), [("F1", True), ("Brier", False)])
def test_it_is_known_whether_any_epoch_was_measured_by_the_metric(metric: str, is_measured: bool) -> None:
    reports = EpochReports(Told(), metric, "maximize", range(1, 5))  # pyright: ignore[reportArgumentType]
    reports(EpochFinished("teacher", 2, curve(0.1)))
    assert reports.has_reported == is_measured
