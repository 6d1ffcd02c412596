"""The study: which trials there were, which come next. Optuna's journal holds it, so a killed sweep forgets nothing."""

from __future__ import annotations

import math
import os
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from icalib.core.component import has_setting, with_settings
from icalib.core.errors import Abandoned, SettingError
from icalib.core.locks import FileLock
from icalib.core.seeding import child_seed
from icalib.methods.composition import Method
from icalib.sweeps.folder import SweepFolder, order_of
from icalib.sweeps.space import SAMPLERS, Space

_SETTINGS = "settings"
_ERROR = "error"
_FAILED_AT = "failed_at"
_LEFT_OUT = "left_out"
_STOPPED = "stopped"
_NUM_TRIALS = 20
_SEED = 1
_MOST_REFUSALS = 50

optuna.logging.set_verbosity(optuna.logging.WARNING)


class TrialStopped(Abandoned):
    """The pruner sees no hope for a trial."""


class RefusedSettings(SettingError):
    """Settings that exist, with values that the method refuses, such as thresholds in the wrong order."""


@dataclass(frozen=True)
class Proposal:
    """A trial to run: its number, the settings that the space proposed, and the method with them."""

    number: int
    settings: dict[str, Any]
    method: Method


class SweepStudy:
    """Asks the space for trials and remembers what became of them.

    One process at a time asks and tells; the processes of trials only report (see `Rungs`).

    Args:
        folder: the sweep's folder, with its settings.
        space: proposes settings.
        base: the method that they change.
        num_trials: how many trials the study should have in the end; None takes all points of a grid, else 20.

    Raises:
        SettingError: the space proposes settings that the method doesn't have, or only such as it refuses.
    """

    def __init__(self, folder: SweepFolder, space: Space, base: Method, num_trials: int | None) -> None:
        self._space, self._base, self._settings = space, base, folder.settings
        self._points = feasible_points(space, base) if self._settings.sampler == "grid" else None
        self.num_trials = num_trials or _NUM_TRIALS
        if self._points is not None:
            self.num_trials = min(num_trials or len(self._points), len(self._points))
        self._study = optuna.create_study(
            study_name=folder.name,
            storage=_storage(folder.journal_path),
            directions=list(self._settings.metrics.values()),
            load_if_exists=True,
        )
        self._interrupted = [trial.number for trial in self.trials() if trial.state == TrialState.RUNNING]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is told, in this order."""
        return tuple(self._settings.metrics)

    def trials(self) -> list[FrozenTrial]:
        """All trials but those that were left out before they cost anything."""
        found = self._study.get_trials(deepcopy=False)
        return [trial for trial in found if _LEFT_OUT not in trial.user_attrs and trial.state != TrialState.WAITING]

    @property
    def num_missing(self) -> int:
        """Trials that are still to be run or finished."""
        return max(0, self.num_trials - len(self.trials())) + len(self._interrupted)

    def next(self) -> Proposal | None:
        """A trial that was interrupted or had failed before, or else a new one; None when there are enough."""
        while self._interrupted:
            trial = self._study.get_trials(deepcopy=False)[self._interrupted.pop(0)]
            if _SETTINGS in trial.user_attrs:
                settings = trial.user_attrs[_SETTINGS]
                if error_of(trial) is not None:
                    self._set_attribute(trial.number, _ERROR, None)
                return Proposal(trial.number, settings, with_settings(self._base, settings))
            self._leave_out(trial.number, "interrupted before it was proposed")
        return self._new() if len(self.trials()) < self.num_trials else None

    def _new(self, refusals: int = 0) -> Proposal:
        trial = self._ask()
        try:
            settings = self._space.proposed(trial)
        except SettingError as error:
            self._leave_out(trial.number, str(error))
            raise
        try:
            method = _changed(self._base, settings)
        except RefusedSettings as error:
            self._leave_out(trial.number, str(error))
            if refusals == _MOST_REFUSALS:
                raise _nothing_feasible(self._space, error) from error
            return self._new(refusals + 1)
        trial.set_user_attr(_SETTINGS, settings)
        return Proposal(trial.number, settings, method)

    def _ask(self) -> optuna.Trial:
        known = self._study.get_trials(deepcopy=False)
        # A sampler for each trial: what it draws depends on the trials before, not on when the sweep was interrupted.
        self._study.sampler = _sampler(self._settings.sampler, len(known))
        waiting = any(trial.state == TrialState.WAITING for trial in known)
        if self._points is not None and not waiting:
            taken = [trial.system_attrs.get("fixed_params") for trial in known if _LEFT_OUT not in trial.user_attrs]
            self._study.enqueue_trial(next(point for point in self._points if point not in taken))
        return self._study.ask()

    def _leave_out(self, number: int, reason: str) -> None:
        self._set_attribute(number, _LEFT_OUT, reason)
        self._study.tell(number, state=TrialState.FAIL)

    def _set_attribute(self, number: int, name: str, value: str | None) -> None:
        _live_trial(self._study, number).set_user_attr(name, value)

    def tell_complete(self, number: int, values: Sequence[float]) -> None:
        """A trial is over; `values` are its metrics, means over the seeds."""
        self._study.tell(number, list(values))

    def tell_pruned(self, number: int) -> None:
        """A trial was stopped."""
        self._study.tell(number, state=TrialState.PRUNED)

    def tell_failed(self, number: int, error: str) -> None:
        """A trial failed; the error is kept.

        For Optuna it goes on running, since what it knows as failed can't be run again: the next call's study does.
        """
        self._set_attribute(number, _FAILED_AT, datetime.now(UTC).isoformat(timespec="milliseconds"))
        self._set_attribute(number, _ERROR, error)

    def winner(self) -> FrozenTrial | None:
        """The best complete trial by the first metric, equal ones by the next, the earliest of several.

        So none betters it in every metric, and it is the first that reports show.
        """
        complete = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        metrics = self._settings.metrics
        return min(complete, key=lambda t: (order_of(t.values, metrics), t.number), default=None)


def settings_of(trial: FrozenTrial) -> dict[str, Any]:
    """What the space proposed, by dotted key."""
    return trial.user_attrs.get(_SETTINGS, {})


def error_of(trial: FrozenTrial) -> str | None:
    """Why a trial failed; None for one that didn't, or that runs again."""
    return trial.user_attrs.get(_ERROR)


def failed_at(trial: FrozenTrial) -> str | None:
    """When a trial failed, in ISO 8601; None for one that didn't, or that runs again."""
    return None if error_of(trial) is None else trial.user_attrs.get(_FAILED_AT)


def proposals(space: Space, base: Method, sampler: str, num_trials: int | None) -> list[Proposal]:
    """What a sweep would try if it learnt nothing from its trials; nothing is kept.

    Raises:
        SettingError: the space is faulty, or proposes nothing that the method takes.
    """
    if sampler == "grid":
        points = feasible_points(space, base)[:num_trials]
        settings = [space.proposed(FixedTrial(point)) for point in points]
        return [Proposal(number, one, _changed(base, one)) for number, one in enumerate(settings)]
    study = optuna.create_study(directions=list(space.metrics.values()))
    found: list[Proposal] = []
    refusals = 0
    while len(found) < (num_trials or _NUM_TRIALS):
        study.sampler = _sampler(sampler, len(study.trials))
        proposed = space.proposed(study.ask())
        try:
            found.append(Proposal(len(found), proposed, _changed(base, proposed)))
            refusals = 0
        except RefusedSettings as error:
            refusals += 1
            if refusals > _MOST_REFUSALS:
                raise _nothing_feasible(space, error) from error
    return found


def feasible_points(space: Space, base: Method) -> list[dict[str, Any]]:
    """The points of a space's grid that the method takes.

    Raises:
        SettingError: there is no grid, or no point that the method takes.
    """
    if space.grid is None:
        raise SettingError(
            f"the space `{space.name}` has no function `grid()`, so --sampler grid can't be had. Take another sampler "
            f"({', '.join(name for name in SAMPLERS if name != 'grid')}), or add the function."
        )
    kept: list[dict[str, Any]] = []
    refusal: RefusedSettings | None = None
    points = space.points()
    if not points:
        raise SettingError(f"{space.file}: grid() has no points. Add some, or take another --sampler.")
    for point in points:
        try:
            _changed(base, space.proposed(FixedTrial(point)))
            kept.append(point)
        except RefusedSettings as error:
            refusal = error
    if not kept:
        raise _nothing_feasible(space, refusal)
    return kept


def _nothing_feasible(space: Space, refusal: RefusedSettings | None) -> SettingError:
    return SettingError(
        f"the space `{space.name}` proposes nothing that the method takes; the last refusal: {refusal}. "
        "Change the space, or what is fixed, with --set."
    )


class Rungs:
    """Where a trial's process reports how far it has come, and hears whether it should stop.

    Optuna's pruners decide: halving after steps 1, 3, 9 …, the median after any, once five trials are complete (it
    compares a trial's best step so far, so that it rarely stops one after its first seed). A step is an epoch, or the
    mean over the seeds so far. With several metrics nothing is reported, since pruners look at one.
    """

    def __init__(self, folder: SweepFolder, number: int) -> None:
        settings = folder.settings
        self._trial: optuna.Trial | None = None
        if len(settings.metrics) == 1:
            study = optuna.load_study(
                study_name=folder.name,
                storage=_storage(folder.journal_path),
                sampler=RandomSampler(),
                pruner=_pruner(settings.pruner),
            )
            self._trial = _live_trial(study, number)

    def report(self, step: int, value: float) -> None:
        """Tell a figure; a step that was reported before an interruption keeps it.

        Raises:
            TrialStopped: the other trials are better at this step.
        """
        if self._trial is None or math.isnan(value):
            return
        if _STOPPED in self._trial.user_attrs:
            raise TrialStopped(self._trial.user_attrs[_STOPPED])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"The reported value is ignored", UserWarning)
            self._trial.report(value, step)
        if self._trial.should_prune():
            # Written down: asked again after a kill, halving would let the trial go on to its next rung.
            self._trial.set_user_attr(_STOPPED, f"the pruner stopped trial {self._trial.number} after step {step}")
            raise TrialStopped(self._trial.user_attrs[_STOPPED])


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation over seeds; the latter is 0 for one seed."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _changed(base: Method, settings: Mapping[str, Any]) -> Method:
    unknown = [
        path
        for path in settings
        if not has_setting(base, path) and not any(path.startswith(f"{whole}.") for whole in settings)
    ]
    try:
        return with_settings(base, settings)
    except SettingError as error:
        if unknown:
            raise SettingError(f"the space proposes a setting that isn't there: {error}") from error
        raise RefusedSettings(str(error)) from error


def _sampler(name: str, number: int) -> BaseSampler:
    """For the trial of a number."""
    seed = child_seed(_SEED, "sampler", number) % 2**32
    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(seed=seed, constant_liar=True)  # trials that run side by side keep apart
    if name == "nsga2":
        return NSGAIISampler(population_size=10, seed=seed)
    if name == "qmc":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            # One seed for one sequence; the study counts how far it has come.
            return QMCSampler(seed=_SEED, independent_sampler=RandomSampler(seed), warn_independent_sampling=False)
    return RandomSampler(seed)


def _pruner(name: str) -> BasePruner:
    if name == "median":
        return MedianPruner()
    if name == "asha":
        return SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return HyperbandPruner(min_resource=1) if name == "hyperband" else NopPruner()


def _storage(journal: Path) -> JournalStorage:
    journal.parent.mkdir(parents=True, exist_ok=True)
    lock: Any = _JournalLock(journal)
    with lock:
        pass  # mends what the last writer left
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))


class _JournalLock(FileLock):
    """Whoever appends to the journal holds it, and finds the journal without half a line at its end.

    Unlike Optuna's own locks it goes with its holder: a killed process keeps nobody waiting. Half a line, which a full
    disk or a kill can leave, is cut off: Optuna would refuse the whole journal as soon as a line came after it.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(journal.with_name(f"{journal.name}.lock"))
        self._journal = journal

    def acquire(self, *, shared: bool = False, wait: bool = True) -> bool:
        """Take the lock, then mend the journal."""
        taken = super().acquire(shared=shared, wait=wait)
        if taken and self._journal.is_file():
            _cut_off_half_line(self._journal)
        return taken


def _cut_off_half_line(journal: Path) -> None:
    with journal.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read() in (b"", b"\n"):
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _live_trial(study: optuna.Study, number: int) -> optuna.Trial:
    """A trial that another process asked for."""
    frozen = study.get_trials(deepcopy=False)[number]
    return optuna.Trial(study, frozen._trial_id)  # pyright: ignore[reportPrivateUsage]  # no public way by number
