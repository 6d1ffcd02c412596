"""Sweeps: trials that are missing, one by one with each seed, then the winner with its test metrics."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from icalib.core.component import Settings, Stored, with_settings
from icalib.core.errors import Abandoned, IcalibError, SettingError
from icalib.core.events import (
    Emit,
    EpochFinished,
    Event,
    Message,
    Progress,
    RunUpdated,
    StageFinished,
    StageStarted,
    ignore,
)
from icalib.core.imports import failed
from icalib.core.locks import FileLock
from icalib.core.run_folder import RunFolder, read_config
from icalib.core.stage_cache import remove_stage
from icalib.core.storage import local_path, pull, push, remove
from icalib.metrics.catalogue import find_metric, known_metrics, metric_tag
from icalib.metrics.metric import Direction
from icalib.pipeline.claim import differences
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import RunContext, run
from icalib.stages.executor import Executor
from icalib.stages.resources import Resources
from icalib.sweeps.folder import Best, SweepFolder, SweepSettings
from icalib.sweeps.space import Space
from icalib.sweeps.study import Rungs, SweepStudy, settings_of
from icalib.sweeps.trials import brief, settings_text

_DIED = "the trial's process died; if memory ran out, lower --concurrent or `max_tokens_per_batch`"


@dataclass(frozen=True)
class SweepPlan:
    """How a sweep is carried out; none of it decides a trial's numbers."""

    num_trials: int | None
    """None: all points of a grid, else 20."""
    concurrent: int
    each: Resources
    """What one of them may use."""


class Trials:
    """The trials that a sweep is missing, one after the other; proposals change `base`."""

    def __init__(
        self, folder: SweepFolder, study: SweepStudy, base: RunConfig, context: RunContext, plan: SweepPlan
    ) -> None:
        self.folder, self.plan = folder, plan
        self._study, self._base, self._context = study, base, context
        self._metrics = folder.settings.metrics
        self._under_way: dict[int, tuple[str, float]] = {}  # settings of each, and when it began
        self.refusal: SettingError | None = None

    @property
    def num_missing(self) -> int:
        """How many are left."""
        return self._study.num_missing

    def next(self) -> TrialJob | None:
        """The next trial; None when there is none left, or when the space is wrong (see `refusal`)."""
        if self.refusal is not None:
            return None
        try:
            proposal = self._study.next()
        except SettingError as error:
            self.refusal = error  # ends the sweep, once the trials under way are over
            return None
        if proposal is None:
            return None
        if proposal.edited:
            for seed in range(1, self.folder.settings.seeds + 1):
                remove(self.folder.run_folder(proposal.number, seed).path)
            self._study.start_again(proposal)  # once they are gone, whenever a kill comes
        push_record(self.folder)  # what was asked for must not be forgotten: the trial's folder has its number
        self._under_way[proposal.number] = settings_text(proposal.settings), time.monotonic()
        self._show_progress()
        return TrialJob(
            folder=self.folder.path,
            number=proposal.number,
            runs=self._context.runs,
            settings=trial_settings(self.folder, self._base, proposal.number, proposal.method),
            steps_a_seed=1 + self._base.settings.regime.num_epochs(),
            resources=self.plan.each,
            command=self._context.command,
        )

    def finish(self, number: int, outcome: Mapping[str, Any] | None) -> None:
        """Record the outcome of a trial in the study; None where its process died."""
        unwatched = ""
        match outcome or {"state": "failed", "error": _DIED}:
            case {"state": "complete", "values": values, "watched": is_watched}:
                self._study.tell_complete(number, values)
                found = self._values_text(values)
                if self.folder.settings.pruner != "none" and not is_watched:
                    title = find_metric(next(iter(self._metrics))).title
                    unwatched = (
                        f"; the pruner can't stop such a trial: no training measures {title} after an epoch as a run "
                        "does at its end"
                    )
            case {"state": "failed", "error": error, **others}:
                self._study.tell_failed(number, error)
                found = f"failed: {brief(error)}"
                if others.get("unmeasured") and self._study.winner() is None:
                    self.refusal = SettingError(error)  # other trials would fail in the same way
            case _:
                self._study.tell_pruned(number)
                found = "stopped by the pruner"
        push_record(self.folder)
        settings, begun = self._under_way.pop(number)
        seconds = time.monotonic() - begun
        self._context.emit(Message(f"trial {number} ({settings}): {found} ({seconds:.0f} s){unwatched}"))
        self._show_progress()

    def _show_progress(self) -> None:
        best, num_running = self._study.winner(), len(self._under_way)
        done = self._study.num_trials - self._study.num_missing - num_running
        notes = [f"{num_running} running"]
        if best is not None:
            notes.append(f"best: trial {best.number}, {self._values_text(best.values)}")
        self._context.emit(Progress("trials", done, self._study.num_trials, "; ".join(notes)))

    def _values_text(self, values: Sequence[float]) -> str:
        return ", ".join(
            f"{find_metric(name).title} {value:.3f}" for name, value in zip(self._metrics, values, strict=True)
        )


RunTrials = Callable[[Trials], None]
"""Runs trials until `next` gives none."""


def run_here(executor: Executor) -> RunTrials:
    """Run trials in this process, one after the other."""

    def run_trials(trials: Trials) -> None:
        while (job := trials.next()) is not None:
            trials.finish(job.number, run_seeds(job, executor))

    return run_trials


def sweep_folder_of(settings: SweepSettings, runs: Path) -> SweepFolder:
    """runs/<experiment>/sweep-<space>-<data>-<labelled>."""
    return SweepFolder(
        runs / settings.experiment / f"sweep-{settings.space}-{settings.data.name}-{settings.labelled:g}"
    )


def sweep(
    settings: SweepSettings,
    space: Space,
    base: RunConfig,
    context: RunContext,
    plan: SweepPlan,
    run_trials: RunTrials,
    *,
    fresh: bool = False,
) -> SweepFolder:
    """Run the trials that are missing, then the winner with its test metrics.

    Trials see validation alone and share the stage cache. The same call again resumes: those that were under way when
    it ended, or failed, are the first to run again. `fresh` forgets the earlier trials; cached stages stay. For errors
    see `SweepStudy` and `claimed`.
    """
    with claimed(settings, context.runs, fresh=fresh) as folder:
        study = SweepStudy(space, base.settings, settings.sampler, plan.num_trials, folder.journal_path)
        if plan.num_trials is not None and (why := study.why_not(plan.num_trials)):
            context.emit(Message(f"{plan.num_trials} trials were asked for: {why}"))
        if study.num_missing:
            trials = Trials(folder, study, base, context, plan)
            run_trials(trials)
            if trials.refusal is not None:
                raise trials.refusal
            if study.refusals:
                context.emit(Message(f"proposals left out: {len(study.refusals)}; the last: {study.refusals[-1]}"))
        winner = study.winner()
        if winner is not None:
            chosen = settings_of(winner)
            method = with_settings(base.settings, chosen)
            runs = _run_winner(folder, trial_settings(folder, base, winner.number, method), context)
            folder.write_best(_best(folder, winner.number, chosen, runs))
            _remove_other_models(folder, study, winner.number)
    return folder


@contextmanager
def claimed(
    settings: SweepSettings, runs: Path, *, fresh: bool = False, dry: bool = False
) -> Generator[SweepFolder, None, None]:
    """Hold the folder of a sweep, for this process alone; `fresh` empties it.

    `dry` runs no trial, so that the folder's command stays that of its trials.
    A SettingError says that it has a sweep with other settings, or that another process works in it.
    """
    folder = sweep_folder_of(settings, runs)
    lock = FileLock(folder.path.with_name(f".{folder.path.name}.lock"))
    if not lock.acquire(wait=False):
        raise SettingError(f"another process runs the sweep in {folder.path}. Wait for it, or end it.")
    try:
        if fresh:
            remove(folder.path)
        pull(folder.path, leave_out="checkpoints")
        is_begun = folder.exists and folder.journal_path.is_file()
        if is_begun:
            folder.check_version()
            _check_same(folder, settings)
            if dry:
                settings = settings.model_copy(update={"command": folder.settings.command})
        if not (is_begun and folder.settings == settings):  # to write it again would begin the folder anew elsewhere
            folder.write_settings(settings)
        yield folder
        push(folder.path)
    finally:
        lock.release()


def _check_same(folder: SweepFolder, settings: SweepSettings) -> None:
    # pools may have been moved: their digest says whether they are the same
    found, wanted = (s.model_dump(mode="json", exclude={"command", "data"}) for s in (folder.settings, settings))
    different = sorted(
        differences(found, wanted), key=lambda name: (name == "method_digest", name)
    )  # it differs wherever others do
    if different:
        what = {
            "data_digest": f"began on other pools than those in {settings.data} now",
            "space_digest": f"began before the space `{settings.space}` or a metric of it was edited",
            "method_digest": f"began with other defaults of `{settings.method}`, in its code, icalib's or a component",
        }.get(different[0], f"has other settings ({', '.join(different[:5])})")
        raise SettingError(
            f"the sweep in {folder.path} {what}. Use --fresh to replace it, or another --experiment to keep both."
        )


def push_record(folder: SweepFolder) -> None:
    """Push the settings and the journal to the store; the trials' runs push themselves."""
    for path in (folder.settings_path, folder.journal_path):
        push(path)


def trial_settings(folder: SweepFolder, base: RunConfig, number: int, method: Any) -> RunConfig:
    """The run of a trial with seed 1; its name says where its settings come from."""
    return base.model_copy(
        update={
            "method": f"{base.method}@{folder.settings.space}-{number}",
            "settings": method,
            "backbone": method.encoder.backbone,
            "metrics": tuple(name for name in folder.settings.metrics if name not in known_metrics()),
        }
    )


def _run_winner(folder: SweepFolder, settings: RunConfig, context: RunContext) -> list[RunFolder]:
    configs = [path / "config.yaml" for path in folder.best_config_path.parent.glob("s*")]
    if not all(path.is_file() and read_config(path).get("method") == settings.method for path in configs):
        folder.forget_best()  # more trials, another winner; or it was being forgotten when the sweep was killed
    computed = replace(context, emit=partial(_show_computed, context.emit))
    seeds = range(1, folder.settings.seeds + 1)
    runs = [run(settings.model_copy(update={"seed": n}), computed, folder=folder.best_run(n)) for n in seeds]
    shutil.copyfile(runs[0].path / "config.yaml", folder.best_config_path)
    return runs


def _show_computed(emit: Emit, event: Event) -> None:
    """Emit the stages of the winner that its trial didn't compute, and its content for TensorBoard and trackers."""
    match event:
        case StageStarted(reused=False) | StageFinished(reused=False) | Progress() | RunUpdated():
            emit(event)
        case _:
            pass


def _best(folder: SweepFolder, number: int, params: dict[str, Any], runs: Sequence[RunFolder]) -> Best:
    metrics = dict.fromkeys((*known_metrics(), *folder.settings.metrics))
    by_split = {
        split: {name: mean_of(runs, split, name) for name in metrics if all(name in run.result[split] for run in runs)}
        for split in ("validation", "test")
    }
    return Best(trial=number, params=params, validation=by_split["validation"], test=by_split["test"], seeds=len(runs))


def _remove_other_models(folder: SweepFolder, study: SweepStudy, winner: int) -> None:
    """Cached models that this sweep computed for losing trials, unless another process uses them."""
    seeds = range(1, folder.settings.seeds + 1)
    needed = {stage["digest"] for seed in seeds for stage in folder.run_folder(winner, seed).stages}
    for trial in study.trials():
        for stage in (stage for seed in seeds for stage in folder.run_folder(trial.number, seed).stages):
            path = local_path(stage["path"])
            if not stage["reused"] and stage["digest"] not in needed and (path / "checkpoint").is_dir():
                remove_stage(path, also_in_store=True)


class TrialJob(Settings):
    """What the process of a trial receives."""

    folder: Stored
    number: int
    runs: Stored
    settings: RunConfig
    """Those of the first seed."""
    steps_a_seed: int
    """Steps between the reports of one seed and the next, so that a step means the same in all trials."""
    resources: Resources
    command: str


def run_seeds(job: TrialJob, executor: Executor) -> dict[str, Any]:
    """Run a trial with each seed; return its outcome for the study: `state` with `values` or `error`."""
    folder = SweepFolder(job.folder)
    settings = folder.settings
    rungs, metric = Rungs(folder, job.number), next(iter(settings.metrics))
    finished: list[RunFolder] = []
    is_watched = settings.seeds > 1
    # Epochs are measured without calibration, which may turn the order of trials around.
    measures_by_epoch = find_metric(metric).group != "cal" or job.settings.settings.calibration is None
    try:
        for seed in range(1, settings.seeds + 1):
            last_step = seed * job.steps_a_seed
            steps = range(last_step - job.steps_a_seed + 1, last_step)
            reports = EpochReports(rungs, metric, settings.metrics[metric], steps)
            context = RunContext(
                runs=job.runs,
                executor=executor,
                emit=reports if measures_by_epoch else ignore,  # the run folder is the record
                command=job.command,
                evaluated=("validation",),
                keep_checkpoints=False,
            )
            trial = job.settings.model_copy(update={"seed": seed})
            finished.append(run(trial, context, folder=folder.run_folder(job.number, seed)))
            _check_measured(finished[-1], trial, settings.metrics)
            is_watched |= reports.has_reported
            if seed < settings.seeds:  # after the last there is nothing to stop
                rungs.report(last_step, mean_of(finished, "validation", metric)[0])
    except Abandoned:
        return {"state": "pruned"}
    except _UnmeasuredError as error:
        return {"state": "failed", "error": str(error), "unmeasured": True}
    except IcalibError as error:
        return {"state": "failed", "error": str(error)}
    except Exception as error:
        return {"state": "failed", "error": str(failed("the run ended", error))}
    values = [mean_of(finished, "validation", metric)[0] for metric in settings.metrics]
    return {"state": "complete", "values": values, "watched": is_watched}


class _UnmeasuredError(SettingError):
    """A tuned metric doesn't apply to the validation pools, and so to no trial."""


def _check_measured(finished: RunFolder, config: RunConfig, metrics: Iterable[str]) -> None:
    """Refuse a result without a tuned metric, whose absence is no damage: it doesn't apply to the pools, or is NaN."""
    found = finished.result["validation"]
    for name in metrics:
        if name in found:
            continue
        metric = find_metric(name)
        if metric.applies is not None:
            raise _UnmeasuredError(
                f"the space tunes {name} ({metric.description}), which does not apply to the validation pools of "
                f"{config.data}. Name another metric in METRICS, or prepare pools that it is about."
            )
        raise SettingError(
            f"{name} ({metric.description}) is NaN on the validation pools: none counts in it with these settings."
        )


class EpochReports:
    """Reports one seed's run to the pruner: after each epoch, the best validation value since its training began.

    Trainings take steps for their maximum number of epochs in the order in which they begin, so that early stopping in
    one shifts none. Epochs for which no steps are left, where trials tune their number, are not reported.
    """

    def __init__(self, rungs: Rungs, metric: str, direction: Direction, steps: range) -> None:
        self._rungs, self._tag = rungs, metric_tag(metric)
        self._better = max if direction == "maximize" else min
        self._left = steps
        self._steps: dict[str, range] = {}
        self._num_reported: Counter[str] = Counter()
        self._stopped: Abandoned | None = None
        self._lock = threading.Lock()

    @property
    def has_reported(self) -> bool:
        """Whether a training has measured the metric after an epoch."""
        return any(self._num_reported.values())

    def __call__(self, event: Event) -> None:
        """Report the epochs that are new; once the trial is stopped, every event of an epoch raises Abandoned."""
        if not isinstance(event, EpochFinished):
            return
        points = [point for point in event.points if point["tag"] == self._tag]
        best = list(itertools.accumulate((point["value"] for point in points), self._better))
        best = best[sum(point["epoch"] == 0 for point in points) :]  # the start counts, but is no epoch
        with self._lock:
            if event.stage not in self._steps:
                self._steps[event.stage], self._left = self._left[: event.max_epochs], self._left[event.max_epochs :]
            if self._stopped is not None:
                raise self._stopped
            new = slice(self._num_reported[event.stage], len(best))
            self._num_reported[event.stage] = len(best)
            try:
                for step, value in zip(self._steps[event.stage][new], best[new], strict=False):
                    self._rungs.report(step, value)
            except Abandoned as error:
                self._stopped = error
                raise


def mean_of(runs: Sequence[RunFolder], split: str, metric: str) -> tuple[float, float]:
    """Return mean and standard deviation (0 for one seed) of a metric over the seeds of a trial."""
    values = np.array([folder.result[split][metric] for folder in runs], np.float64)
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
