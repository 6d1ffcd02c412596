"""The study: which trials there were, and which come next. Optuna's journal stores it, so a killed sweep resumes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.methods.composition import Method
from icalib.sweeps.folder import SweepFolder, order_of
from icalib.sweeps.journal import live_trial, open_journal
from icalib.sweeps.proposals import (
    MAX_REFUSALS,
    NUM_TRIALS,
    Proposal,
    RefusedSettings,
    changed_method,
    feasible_points,
    make_sampler,
    nothing_feasible,
)
from icalib.sweeps.space import Space

_SETTINGS = "settings"
_ERROR = "error"
_FAILED_AT = "failed_at"
_LEFT_OUT = "left_out"


class SweepStudy:
    """Optuna's study of a sweep: proposes trials and records their outcomes.

    One process at a time asks and tells; the processes of trials only report (see `Rungs`).

    Args:
        folder: the sweep's folder, with its settings.
        space: proposes settings.
        base: the method whose settings they change.
        num_trials: total number of trials; None means all points of a grid, else 20.

    Raises:
        SettingError: the space proposes settings that the method doesn't have, or only ones that it refuses.
    """

    def __init__(self, folder: SweepFolder, space: Space, base: Method, num_trials: int | None) -> None:
        self._space, self._base, self._settings = space, base, folder.settings
        self._points = feasible_points(space, base) if self._settings.sampler == "grid" else None
        self.num_trials = num_trials or NUM_TRIALS
        if self._points is not None:
            self.num_trials = min(num_trials or len(self._points), len(self._points))
        self._study = optuna.create_study(
            study_name=folder.name,
            storage=open_journal(folder.journal_path),
            directions=list(self._settings.metrics.values()),
            load_if_exists=True,
        )
        self._interrupted = [trial.number for trial in self.trials() if trial.state == TrialState.RUNNING]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order in which `tell_complete` takes their values."""
        return tuple(self._settings.metrics)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials but those that were left out before they started."""
        found = self._study.get_trials(deepcopy=False)
        return [trial for trial in found if _LEFT_OUT not in trial.user_attrs and trial.state != TrialState.WAITING]

    @property
    def num_missing(self) -> int:
        """Number of trials that are still to be run or finished."""
        return max(0, self.num_trials - len(self.trials())) + len(self._interrupted)

    def next(self) -> Proposal | None:
        """Return a trial that was interrupted or had failed before, else a new one; None when there are enough."""
        while self._interrupted:
            trial = self._study.get_trials(deepcopy=False)[self._interrupted.pop(0)]
            if _SETTINGS in trial.user_attrs:
                settings = trial.user_attrs[_SETTINGS]
                if error_of(trial) is not None:
                    self._set_attribute(trial.number, _ERROR, None)
                return Proposal(trial.number, settings, with_settings(self._base, settings))
            self._use_sampler_of(trial.number)
            return self._proposed(live_trial(self._study, trial.number), refusals=0)
        return self._new() if len(self.trials()) < self.num_trials else None

    def _new(self, refusals: int = 0) -> Proposal:
        return self._proposed(self._ask(), refusals)

    def _proposed(self, trial: optuna.Trial, refusals: int) -> Proposal:
        """Let the space propose a trial's settings; those that the method refuses are left out, and the next asked."""
        try:
            settings = self._space.proposed(trial)
        except SettingError as error:
            self._leave_out(trial.number, str(error))
            raise
        try:
            method = changed_method(self._base, settings)
        except RefusedSettings as error:
            self._leave_out(trial.number, str(error))
            if refusals == MAX_REFUSALS:
                raise nothing_feasible(self._space, error) from error
            return self._new(refusals + 1)
        trial.set_user_attr(_SETTINGS, settings)
        return Proposal(trial.number, settings, method)

    def _ask(self) -> optuna.Trial:
        known = self._study.get_trials(deepcopy=False)
        self._use_sampler_of(len(known))
        waiting = any(trial.state == TrialState.WAITING for trial in known)
        if self._points is not None and not waiting:
            taken = [trial.system_attrs.get("fixed_params") for trial in known if _LEFT_OUT not in trial.user_attrs]
            self._study.enqueue_trial(next(point for point in self._points if point not in taken))
        return self._study.ask()

    def _use_sampler_of(self, number: int) -> None:
        """Use a trial's own sampler: what it draws depends on the trials before, not on when they were interrupted."""
        self._study.sampler = make_sampler(self._settings.sampler, number)

    def _leave_out(self, number: int, reason: str) -> None:
        self._set_attribute(number, _LEFT_OUT, reason)
        self._study.tell(number, state=TrialState.FAIL)

    def _set_attribute(self, number: int, name: str, value: str | None) -> None:
        live_trial(self._study, number).set_user_attr(name, value)

    def tell_complete(self, number: int, values: Sequence[float]) -> None:
        """Record that a trial is complete; `values` are its metrics, means over the seeds."""
        self._study.tell(number, list(values))

    def tell_pruned(self, number: int) -> None:
        """Record that the pruner stopped a trial."""
        self._study.tell(number, state=TrialState.PRUNED)

    def tell_failed(self, number: int, error: str) -> None:
        """Record that a trial failed, with its error.

        For Optuna it keeps running, since a trial that Optuna records as failed can't be run again: the next call does.
        """
        self._set_attribute(number, _FAILED_AT, datetime.now(UTC).isoformat(timespec="milliseconds"))
        self._set_attribute(number, _ERROR, error)

    def winner(self) -> FrozenTrial | None:
        """Return the best complete trial by the first metric; ties are decided by the next metrics, then by number.

        No other trial is better in every metric, and it is the first one in reports.
        """
        complete = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        metrics = self._settings.metrics
        return min(complete, key=lambda t: (order_of(t.values, metrics), t.number), default=None)


def settings_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the settings that the space proposed, by dotted key."""
    return trial.user_attrs.get(_SETTINGS, {})


def error_of(trial: FrozenTrial) -> str | None:
    """Return why a trial failed; None for one that didn't, or that runs again."""
    return trial.user_attrs.get(_ERROR)


def failed_at(trial: FrozenTrial) -> str | None:
    """Return when a trial failed, in ISO 8601; None for one that didn't, or that runs again."""
    return None if error_of(trial) is None else trial.user_attrs.get(_FAILED_AT)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation over seeds; the latter is 0 for one seed."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
