"""The study: which trials there were, and which come next. Optuna's journal stores it, so a killed sweep resumes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from icalib.core.component import has_setting, with_settings
from icalib.core.errors import Abandoned, ComponentError, SettingError
from icalib.core.files import reading
from icalib.core.job import from_outside
from icalib.core.locks import FileLock
from icalib.core.seeding import child_seed
from icalib.methods.method import Method
from icalib.metrics.metric import Direction
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.space import SAMPLERS, Pruner, Sampler, Space

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_journal(journal: Path) -> JournalStorage:
    """Open the journal, which is made if it does not exist; a DamagedFileError if it can't be read."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    lock: Any = _JournalLock(journal)
    with reading(journal):
        return JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))


class _JournalLock:
    """The lock of a process that appends to the journal; acquiring it removes an incomplete last line.

    Unlike Optuna's own locks it ends with its holder. Optuna would refuse the whole journal as soon as a line followed
    half a line, which a full disk or a kill can leave.
    """

    def __init__(self, journal: Path) -> None:
        self._journal, self._lock = journal, FileLock(journal.with_name(f"{journal.name}.lock"))

    def acquire(self) -> bool:
        self._lock.acquire()
        with self._journal.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self._lock.release()


def live_trial(study: optuna.Study, number: int) -> optuna.Trial:
    """Return a trial that another process asked for, to be changed."""
    frozen = study.get_trials(deepcopy=False)[number]
    return optuna.Trial(study, frozen._trial_id)  # pyright: ignore[reportPrivateUsage]  # no public way by number


_STOPPED = "stopped"


class Rungs:
    """Reports from a trial's process to the pruner, which may stop the trial.

    Halving decides after steps 1, 3, 9 …, the median after any, once five trials are complete (by a trial's best step
    so far, so that it rarely stops one after its first seed). A step is an epoch, or the mean over the seeds so far.
    With several metrics nothing is reported, since pruners look at one.
    """

    def __init__(self, folder: SweepFolder, number: int) -> None:
        settings = folder.settings
        self._trial: optuna.Trial | None = None
        if len(settings.metrics) == 1:
            study = optuna.load_study(
                study_name=folder.path.name,
                storage=open_journal(folder.journal_path),
                sampler=RandomSampler(),
                pruner=_PRUNERS[settings.pruner](),
            )
            self._trial = live_trial(study, number)

    def report(self, step: int, value: float) -> None:
        """Report the metric at a step, which keeps an earlier value; Abandoned if the other trials are better at it."""
        if self._trial is None or math.isnan(value):
            return
        if _STOPPED in self._trial.user_attrs:
            raise Abandoned(self._trial.user_attrs[_STOPPED])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"The reported value is ignored", UserWarning)
            self._trial.report(value, step)
        if self._trial.should_prune():
            # Stored: asked again after a kill, halving would let the trial continue to its next rung.
            self._trial.set_user_attr(_STOPPED, f"the pruner stopped trial {self._trial.number} after step {step}")
            raise Abandoned(self._trial.user_attrs[_STOPPED])


_PRUNERS: dict[Pruner, Callable[[], BasePruner]] = {
    "none": NopPruner,
    "median": MedianPruner,
    "asha": lambda: SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    "hyperband": lambda: HyperbandPruner(min_resource=1),
}


NUM_TRIALS = 20
"""Trials of a sweep without a grid, unless set."""
_TIED_DIGITS = 12
"""Decimals to which tied trials agree."""
_MAX_REFUSALS = 50
"""Proposals in a row that a method may refuse before the sweep ends with an error."""
_SEED = 1

_SETTINGS = "settings"
_ERROR = "error"
_OUTSIDE = "components"
"""Of a trial: its components from outside, with the digests of their files."""


class RefusedSettings(SettingError):
    """Existing settings with values that the method refuses, such as thresholds in the wrong order."""


@dataclass(frozen=True)
class Proposal:
    """A trial to run: its number, the settings that the space proposed, and the method with them."""

    number: int
    settings: dict[str, Any]
    method: Method
    edited: bool = field(default=False, compare=False)
    """Whether a component from outside was edited since the trial began: what its runs left is of earlier code."""


def check_number(num_trials: Any) -> None:
    """Refuse what is no number of trials."""
    if num_trials is not None and (not isinstance(num_trials, Integral) or num_trials < 1):
        raise SettingError(f"found {num_trials!r} as number of trials, expected a whole number, 1 or more.")


class SweepStudy:
    """Optuna's study of a sweep: proposes trials and records their outcomes.

    One process at a time proposes trials and records outcomes; those of trials only report (see `Rungs`). Without a
    `journal` the study is in memory; `num_trials` None means all points of a grid, else 20. A SettingError says that
    the space proposes settings that `base` doesn't have, or only ones that it refuses, or that a component was edited
    after a trial, a DamagedFileError that the journal can't be read.
    """

    def __init__(
        self, space: Space, base: Method, sampler: Sampler, num_trials: int | None, journal: Path | None = None
    ) -> None:
        check_number(num_trials)
        self._space, self._base = space, base
        self._sampler: Sampler = sampler
        self._points = feasible_points(space, base) if sampler == "grid" else None
        self.num_trials = num_trials or NUM_TRIALS
        if self._points is not None:
            self.num_trials = min(num_trials or len(self._points), len(self._points))
        self._study = optuna.create_study(
            study_name=None if journal is None else journal.parent.name,
            storage=None if journal is None else open_journal(journal),
            directions=list(space.metrics.values()),
            load_if_exists=True,
        )
        self._check_components()
        self.refusals: list[str] = []
        """Why proposals of this process were left out."""
        self._interrupted = [trial.number for trial in self.trials() if trial.state == TrialState.RUNNING]

    def _check_components(self) -> None:
        """Refuse trials that ran with earlier code of a component: new ones can't be compared with them."""
        for trial in self.trials():
            before = trial.user_attrs.get(_OUTSIDE) if trial.state != TrialState.RUNNING else None
            if before and before != (now := from_outside(with_settings(self._base, settings_of(trial)))):
                edited = ", ".join(name for name in before if now.get(name) != before[name])
                raise SettingError(
                    f"trial {trial.number} ran before {edited} was edited. Use --fresh to replace the sweep, or "
                    "another --experiment to keep both."
                )

    def trials(self) -> list[FrozenTrial]:
        """Return all trials but those that were left out before they started."""
        return _started(self._study)

    @property
    def num_missing(self) -> int:
        """Number of trials that are still to be run or finished."""
        return max(0, self.num_trials - len(self.trials())) + len(self._interrupted)

    def why_not(self, num_trials: int) -> str:
        """Say why the sweep has another number of trials than was asked for; nothing if it has as many."""
        if num_trials > self.num_trials:
            return f"the grid has {self.num_trials} points"
        num_run = len(self.trials())
        return f"{num_run} were begun earlier, and count, too" if num_run > num_trials else ""

    def next(self) -> Proposal | None:
        """Return a trial that was interrupted or had failed before, else a new one; None when there are enough."""
        if self._interrupted:
            trial = self._study.get_trials(deepcopy=False)[self._interrupted.pop(0)]
            if _SETTINGS in trial.user_attrs:
                settings = settings_of(trial)
                if error_of(trial) is not None:
                    self._set_attribute(trial.number, _ERROR, None)
                method = with_settings(self._base, settings)
                outside = from_outside(method)
                edited = trial.user_attrs.get(_OUTSIDE, outside) != outside
                return Proposal(trial.number, settings, method, edited)
            self._use_sampler_of(trial.number)
            return self._proposed(live_trial(self._study, trial.number))
        return self._proposed(self._ask()) if len(self.trials()) < self.num_trials else None

    def _proposed(self, trial: optuna.Trial) -> Proposal:
        """Let the space propose a trial's settings; those that the method refuses are left out, and the next asked."""
        refusals = 0
        while True:
            try:
                settings = self._space.proposed(trial)
                method = changed_method(self._base, settings)
            except SettingError as error:
                self._study.tell(trial.number, state=TrialState.FAIL)
                if not isinstance(error, RefusedSettings):
                    raise
                self.refusals.append(str(error))
                refusals += 1
                if refusals > _MAX_REFUSALS:
                    raise _nothing_feasible(self._space, error) from error
                trial = self._ask()
                continue
            trial.set_user_attr(_OUTSIDE, from_outside(method))
            trial.set_user_attr(_SETTINGS, settings)
            return Proposal(trial.number, settings, method)

    def _ask(self) -> optuna.Trial:
        known = self._study.get_trials(deepcopy=False)
        self._use_sampler_of(len(known))
        if self._points is not None and not any(trial.state == TrialState.WAITING for trial in known):
            self._study.enqueue_trial(self._points[len(self.trials())])
        return self._study.ask()

    def _use_sampler_of(self, number: int) -> None:
        """Use a trial's own sampler: what it draws depends on the trials before, not on when they were interrupted."""
        self._study.sampler = _sampler_of(self._sampler, number)

    def start_again(self, proposal: Proposal) -> None:
        """Record the components with which a trial runs from now on."""
        self._set_attribute(proposal.number, _OUTSIDE, from_outside(proposal.method))

    def _set_attribute(self, number: int, name: str, value: Any) -> None:
        live_trial(self._study, number).set_user_attr(name, value)

    def tell_complete(self, number: int, values: Sequence[float]) -> None:
        """Record that a trial is complete; `values` are its metrics in the space's order, means over the seeds."""
        self._study.tell(number, list(values))

    def tell_pruned(self, number: int) -> None:
        """Record that the pruner stopped a trial."""
        self._study.tell(number, state=TrialState.PRUNED)

    def tell_failed(self, number: int, error: str) -> None:
        """Record that a trial failed, with its error.

        For Optuna it keeps running: a trial that it records as failed can't be run again, which the next call does.
        """
        self._set_attribute(number, _ERROR, error)

    def winner(self) -> FrozenTrial | None:
        """Return the best complete trial by the first metric; ties are decided by the next metrics, then by number."""
        complete = [trial for trial in self.trials() if trial.state == TrialState.COMPLETE]
        return min(complete, key=lambda t: (order_of(t.values, self._space.metrics), t.number), default=None)


def proposals(space: Space, base: Method, sampler: Sampler, num_trials: int | None) -> list[Proposal]:
    """Return what a sweep would try if it learned nothing from its trials; nothing is stored."""
    return list(iter(SweepStudy(space, base, sampler, num_trials).next, None))


def recorded_trials(journal: Path) -> list[FrozenTrial]:
    """Return the trials in a sweep's journal, by number, but those that were left out before they started."""
    if not journal.is_file():
        return []
    with reading(journal):
        storage = open_journal(journal)
        names = [study.study_name for study in storage.get_all_studies()]
        return _started(optuna.load_study(study_name=names[0], storage=storage)) if names else []


def settings_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the settings that the space proposed, by dotted key."""
    return dict(trial.user_attrs.get(_SETTINGS, {}))


def error_of(trial: FrozenTrial) -> str | None:
    """Return why a trial failed; None for one that didn't, or that runs again."""
    return trial.user_attrs.get(_ERROR)


def order_of(values: Sequence[float], metrics: Mapping[str, Direction]) -> tuple[float, ...]:
    """Return the sort key of a trial, smallest for the best: the first metric, ties decided by the next.

    Means over seeds of fractions that are equal on paper, such as those of R@1, differ in their last digits.
    """
    return tuple(
        round(value if direction == "minimize" else -value, _TIED_DIGITS)
        for value, direction in zip(values, metrics.values(), strict=True)
    )


def feasible_points(space: Space, base: Method) -> list[dict[str, Any]]:
    """Return the points of a space's grid that the method accepts; a SettingError if there is none.

    Of points that give the same method the first is kept: the others would be the same runs under another number.
    """
    if space.grid is None:
        others = ", ".join(name for name in SAMPLERS if name != "grid")
        raise SettingError(
            f"the space `{space.name}` has no function `grid()`, which --sampler grid needs. Choose another sampler "
            f"({others}), or add the function."
        )
    kept: dict[str, dict[str, Any]] = {}
    refusal: RefusedSettings | None = None
    for point in space.points():
        try:
            method = changed_method(base, space.proposed(FixedTrial(point)))
        except RefusedSettings as error:
            refusal = error
            continue
        kept.setdefault(method.model_dump_json(), point)
    if not kept:
        raise _nothing_feasible(space, refusal)
    return list(kept.values())


def changed_method(base: Method, settings: Mapping[str, Any]) -> Method:
    """Return the method with a proposal's settings; RefusedSettings for values, SettingError for unknown
    settings and components.
    """
    unknown = [
        path
        for path in settings
        if not has_setting(base, path) and not any(path.startswith(f"{whole}.") for whole in settings)
    ]
    try:
        method = with_settings(base, settings)
    except ComponentError:
        raise
    except SettingError as error:
        if unknown:
            raise SettingError(f"the space proposes a setting that does not exist: {error}") from error
        raise RefusedSettings(str(error)) from error
    for path in settings:
        if why := method.why_unused(path):
            raise SettingError(f"the space proposes `{path}`, which has no effect on this method, as {why}.")
    return method


def _started(study: optuna.Study) -> list[FrozenTrial]:
    left_out = (TrialState.FAIL, TrialState.WAITING)  # trials that failed in their process keep running
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state not in left_out]


def _nothing_feasible(space: Space, refusal: RefusedSettings | None) -> SettingError:
    last = "its grid() has no points" if refusal is None else f"the last refusal: {refusal}"
    return SettingError(
        f"the space `{space.name}` proposes nothing that the method accepts; {last}. "
        "Change the space, or what is fixed, with --set."
    )


def _sampler_of(name: Sampler, number: int) -> BaseSampler:
    seed = child_seed(_SEED, "sampler", number) % 2**32
    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(seed=seed, constant_liar=True)  # trials that run side by side are kept apart
    return NSGAIISampler(population_size=10, seed=seed) if name == "nsga2" else RandomSampler(seed)
