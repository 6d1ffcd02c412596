"""Sweeps: trials that are missing, then the winner with its test metrics."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.core.events import ignore
from icalib.core.locks import FileLock
from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import remove_stage
from icalib.core.storage import local_path, pull, push, remove
from icalib.data.pools import read_pool_set
from icalib.metrics.answers import MEASURED
from icalib.metrics.catalogue import known_metrics
from icalib.pipeline.claim import differences
from icalib.pipeline.executor import Executor
from icalib.pipeline.resources import Resources
from icalib.pipeline.run import RunContext, RunSettings, check_fits, run
from icalib.sweeps.folder import Best, SweepFolder, SweepSettings
from icalib.sweeps.proposals import Proposal
from icalib.sweeps.record import TrialTable
from icalib.sweeps.space import Space
from icalib.sweeps.study import SweepStudy, settings_of
from icalib.sweeps.trial import TrialJob, mean_of, run_seeds

Keep = Literal["best", "all"]
KEPT: tuple[Keep, ...] = ("best", "all")


@dataclass(frozen=True)
class SweepPlan:
    """How a sweep is carried out; none of it decides a trial's numbers.

    Args:
        num_trials: total number of trials; None takes all points of a grid, else 20.
        concurrent: trials side by side; `each` is what one of them may use.
        keep: whether the models of all trials are kept, or only the winner's.
        on_start: called with the sweep's folder, and how many trials there will be.
        on_begin: called with each trial that begins.
        on_end: called with the number of each trial that is over, when trials.parquet has it.
    """

    num_trials: int | None
    concurrent: int
    each: Resources
    keep: Keep
    on_start: Callable[[SweepFolder, int], None]
    on_begin: Callable[[Proposal], None]
    on_end: Callable[[int], None]


class Trials:
    """The trials that a sweep is missing, one after the other, for whoever runs them.

    Args:
        folder, study, table: the sweep's.
        base: the run that proposals change.
        context: folders and command.
        plan: how.
    """

    def __init__(
        self,
        folder: SweepFolder,
        study: SweepStudy,
        table: TrialTable,
        base: RunSettings,
        context: RunContext,
        plan: SweepPlan,
    ) -> None:
        self.folder, self.plan = folder, plan
        self._study, self._table, self._base, self._context = study, table, base, context
        self.refusal: SettingError | None = None

    @property
    def num_missing(self) -> int:
        """How many are left."""
        return self._study.num_missing

    def next(self) -> TrialJob | None:
        """The next trial; None when there is none left, or when the space is wrong (see `refusal`)."""
        try:
            proposal = self._study.next()
        except SettingError as error:
            self.refusal = error  # ends the sweep, once the trials under way are over
            return None
        if proposal is None:
            return None
        self._table.write()
        push_record(self.folder)  # what was asked for must not be forgotten: the trial's folder has its number
        self.plan.on_begin(proposal)
        return TrialJob(
            folder=self.folder.path,
            number=proposal.number,
            runs=self._context.runs,
            settings=trial_settings(self.folder, self._base, proposal.number, proposal.method),
            steps_a_seed=_steps_a_seed(self._base),
            resources=self.plan.each,
            keep_checkpoints=self.plan.keep == "all",
            command=self._context.command,
        )

    def finish(self, number: int, outcome: dict[str, Any] | None) -> None:
        """Tell the study what became of a trial; None where its process died."""
        if outcome is None:
            self._study.tell_failed(
                number, "the trial's process died; if memory ran out, lower --concurrent or `max_tokens_per_batch`"
            )
        elif outcome["state"] == "complete":
            self._study.tell_complete(number, outcome["values"])
        elif outcome["state"] == "pruned":
            self._study.tell_pruned(number)
        else:
            self._study.tell_failed(number, outcome["error"])
        self._table.write()
        push_record(self.folder)
        self.plan.on_end(number)


RunTrials = Callable[[Trials], None]
"""Runs trials until `next` gives none."""


def run_here(executor: Executor) -> RunTrials:
    """Run trials in this process, one after the other."""

    def run_trials(trials: Trials) -> None:
        while (job := trials.next()) is not None:
            trials.finish(job.number, run_seeds(job, executor))

    return run_trials


def why_nothing_is_pruned(settings: SweepSettings, proposals: Sequence[Proposal]) -> str | None:
    """Why a sweep's pruner never has anything to decide; None where it has, or where there is none."""
    if settings.pruner == "none":
        return None
    if len(settings.metrics) > 1:
        return f"pruners look at one metric, and {', '.join(settings.metrics)} are tuned"
    (metric,) = settings.metrics
    if metric not in MEASURED and settings.seeds == 1:
        return f"after an epoch {', '.join(MEASURED)} are known, {metric} only at the end, and there is one seed"
    if settings.seeds == 1 and max(proposal.method.regime.num_epochs() for proposal in proposals) <= 1:
        return "there is one seed, and no second epoch that could be saved"
    return None


def sweep_folder_of(settings: SweepSettings, runs: Path) -> SweepFolder:
    """runs/<experiment>/sweep-<space>-<data>-<labelled>."""
    return SweepFolder(
        runs / settings.experiment / f"sweep-{settings.space}-{settings.data.name}-{settings.labelled:g}"
    )


def sweep(
    settings: SweepSettings,
    space: Space,
    base: RunSettings,
    context: RunContext,
    plan: SweepPlan,
    run_trials: RunTrials,
    *,
    fresh: bool = False,
) -> SweepFolder:
    """Run the trials that are missing, then the winner with its test metrics.

    Trials see validation alone. They share the stage cache with each other and with all runs. The same call again
    resumes: finished trials stay, those that were under way when it ended or failed are the first to run again.

    Args:
        settings: what is asked.
        space: proposes settings.
        base: the run that the proposals change.
        context: for the winner, and for folders.
        plan: how.
        run_trials: runs trials, by Ray Tune or in this process.
        fresh: forget the earlier trials; cached stages stay.

    Raises:
        SettingError: see `SweepStudy`; or the folder holds a sweep with other settings, or another process runs it.
    """
    check_fits(base, read_pool_set(base.data))
    with claimed(settings, context.runs, fresh=fresh) as folder:
        study = SweepStudy(folder, space, base.settings, plan.num_trials)
        table = TrialTable(folder, study)
        table.write()
        plan.on_start(folder, study.num_trials)
        if study.num_missing:
            trials = Trials(folder, study, table, base, context, plan)
            run_trials(trials)
            if trials.refusal is not None:
                raise trials.refusal
        winner = study.winner()
        if winner is not None:
            method = with_settings(base.settings, settings_of(winner))
            runs = _run_winner(folder, trial_settings(folder, base, winner.number, method), context)
            folder.write_best(_best(folder, winner.number, settings_of(winner), runs))
        table.write()
        if winner is not None and plan.keep == "best":
            _remove_other_models(folder, study, winner.number)
    return folder


@contextmanager
def claimed(settings: SweepSettings, runs: Path, *, fresh: bool = False) -> Generator[SweepFolder, None, None]:
    """The folder of a sweep, for this process alone; `fresh` empties it.

    Raises:
        SettingError: it holds a sweep with other settings, or another process works in it.
    """
    folder = sweep_folder_of(settings, runs)
    lock = FileLock(folder.path.with_name(f".{folder.name}.lock"))
    if not lock.acquire(wait=False):
        raise SettingError(f"another process runs the sweep in {folder.path}. Wait for it, or end it.")
    try:
        if fresh:
            remove(folder.path)
        pull(folder.path, leave_out="checkpoints")
        _claim(folder, settings)
        yield folder
        push(folder.path)
    finally:
        lock.release()


def _claim(folder: SweepFolder, settings: SweepSettings) -> None:
    """Write the settings of a new sweep, or check that those of the folder's trials are the same."""
    if folder.exists and folder.journal_path.is_file():
        folder.check_version()
        _check_same(folder, settings)
    folder.write_settings(settings)


def _check_same(folder: SweepFolder, settings: SweepSettings) -> None:
    found, wanted = (s.model_dump(mode="json", exclude={"command"}) for s in (folder.settings, settings))
    different = sorted(differences(found, wanted))
    if different == ["data_digest"]:
        raise SettingError(
            f"the pools in {settings.data} are not those on which the sweep in {folder.path} began. "
            "Use --fresh to replace that sweep, or another --experiment to keep both."
        )
    if different == ["space_digest"]:
        raise SettingError(
            f"the space `{settings.space}` was edited since the sweep in {folder.path} began. "
            "Use --fresh to replace that sweep, or another --experiment to keep both."
        )
    if different:
        raise SettingError(
            f"{folder.path} holds a sweep with other settings ({', '.join(different[:5])}). "
            "Use --fresh to replace it, or another --experiment to keep both."
        )


def push_record(folder: SweepFolder) -> None:
    """Let others see what was asked for and what the trials have told; their runs push themselves."""
    for path in (folder.settings_path, folder.journal_path, folder.trials_path):
        push(path)


def trial_settings(folder: SweepFolder, base: RunSettings, number: int, method: Any) -> RunSettings:
    """The run of a trial with seed 1; its name says where its settings come from."""
    return base.model_copy(
        update={
            "method": f"{base.method}@{folder.settings.space}-{number}",
            "settings": method,
            "backbone": method.encoder.backbone,
            "metrics": tuple(name for name in folder.settings.metrics if name not in known_metrics()),
        }
    )


def _steps_a_seed(base: RunSettings) -> int:
    """One report an epoch, and the mean over the seeds so far when the seed is over."""
    return 1 + base.settings.regime.num_epochs()


def _run_winner(folder: SweepFolder, settings: RunSettings, context: RunContext) -> list[RunFolder]:
    if not all(_is_run_of(path, settings) for path in folder.best_config_path.parent.glob("s*")):
        folder.forget_best()  # more trials, another winner; or it was being forgotten when the sweep was killed
    quiet = replace(context, emit=ignore)
    seeds = range(1, folder.settings.seeds + 1)
    runs = [run(settings.model_copy(update={"seed": n}), quiet, folder=folder.best_run(n)) for n in seeds]
    shutil.copyfile(runs[0].path / "config.yaml", folder.best_config_path)
    return runs


def _is_run_of(path: Path, settings: RunSettings) -> bool:
    return (path / "config.yaml").is_file() and RunFolder(path).config.get("method") == settings.method


def _best(folder: SweepFolder, number: int, params: dict[str, Any], runs: Sequence[RunFolder]) -> Best:
    metrics = dict.fromkeys((*known_metrics(), *folder.settings.metrics))
    by_split = {
        split: {name: mean_of(runs, split, name) for name in metrics if all(name in run.result[split] for run in runs)}
        for split in ("validation", "test")
    }
    return Best(
        trial=number,
        params=params,
        validation=by_split["validation"],
        test=by_split["test"],
        seeds=len(runs),
        config=folder.best_config_path.relative_to(folder.path).as_posix(),
    )


def _remove_other_models(folder: SweepFolder, study: SweepStudy, winner: int) -> None:
    """Cached models that this sweep computed for losing trials, unless another process uses them."""
    seeds = range(1, folder.settings.seeds + 1)
    needed = {stage["digest"] for seed in seeds for stage in folder.run_folder(winner, seed).stages}
    for trial in study.trials():
        for stage in (stage for seed in seeds for stage in folder.run_folder(trial.number, seed).stages):
            path = local_path(stage["path"])
            if not stage["reused"] and stage["digest"] not in needed and (path / "checkpoint").is_dir():
                remove_stage(path)
