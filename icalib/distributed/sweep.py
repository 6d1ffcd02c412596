"""Sweeps: Ray Tune runs a study's trials side by side; each trial is a driver that starts its own Ray Train runs."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from icalib.core.component import Settings, with_settings
from icalib.core.errors import Abandoned, IcalibError, SettingError
from icalib.core.locks import FileLock
from icalib.core.paths import Stored
from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import remove_stage
from icalib.core.storage import is_mirrored, local_path, pull, push, remove
from icalib.data.pools import read_pool_set
from icalib.distributed.session import Resources
from icalib.methods.composition import Method, Untrained
from icalib.metrics.catalogue import known_metrics, metric_tag
from icalib.metrics.metric import Direction
from icalib.pipeline.run import RunSettings, Surroundings, check_fits, differences, run
from icalib.sweeps.folder import Best, SweepFolder, SweepSettings
from icalib.sweeps.record import TrialTable
from icalib.sweeps.space import Space
from icalib.sweeps.study import Proposal, Rungs, SweepStudy, mean_and_deviation, settings_of
from icalib.training.pairs import MEASURED

Keep = Literal["best", "all"]
KEPT: tuple[Keep, ...] = ("best", "all")
_TUNE = ".tune"
_TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends a sweep as it ends a run
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the run folders are the record
    "RAY_AIR_NEW_OUTPUT": "0",  # its boxes go to standard output whatever the verbosity
}


@dataclass(frozen=True)
class Plan:
    """How a sweep is carried out; none of it decides a trial's numbers.

    Args:
        num_trials: trials that there should be in the end; None takes all points of a grid, else 20.
        concurrent: trials side by side; `each` is what one of them may use.
        keep: whether the models of all trials stay, or only the winner's.
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


def why_nothing_is_pruned(settings: SweepSettings, proposals: Sequence[Proposal]) -> str | None:
    """Why a sweep's pruner never has anything to decide; None where it has, or where there is none."""
    if settings.pruner == "none":
        return None
    if len(settings.metrics) > 1:
        return f"pruners look at one metric, and {', '.join(settings.metrics)} are tuned"
    (metric,) = settings.metrics
    if metric not in MEASURED and settings.seeds == 1:
        return f"after an epoch {', '.join(MEASURED)} are known, {metric} only at the end, and there is one seed"
    if settings.seeds == 1 and max(_num_epochs(proposal.method) for proposal in proposals) <= 1:
        return "there is one seed, and no second epoch that could be saved"
    return None


class TrialJob(Settings):
    """What the process of a trial gets."""

    folder: Stored
    number: int
    runs: Stored
    settings: RunSettings
    """Those of the first seed."""
    steps_a_seed: int
    """Steps between the reports of one seed and the next, so that a step means the same in all trials."""
    resources: Resources
    keep_checkpoints: bool
    command: str


def sweep_folder_of(settings: SweepSettings, runs: Path) -> SweepFolder:
    """runs/<experiment>/sweep-<space>-<data>-<labelled>."""
    return SweepFolder(
        runs / settings.experiment / f"sweep-{settings.space}-{settings.data.name}-{settings.labelled:g}"
    )


def sweep(
    settings: SweepSettings,
    space: Space,
    base: RunSettings,
    surroundings: Surroundings,
    plan: Plan,
    *,
    fresh: bool = False,
) -> SweepFolder:
    """Run the trials that are missing, then the winner with its test figures.

    Trials see validation alone. They share the stage cache with each other and with all runs. The same again goes on
    where it was: finished trials stay, those that were under way when it ended or failed are the first to go on.

    Args:
        settings: what is asked.
        space: proposes settings.
        base: the run that the proposals change.
        surroundings: for the winner, and for folders and listeners.
        plan: how.
        fresh: forget the earlier trials; cached stages stay.

    Raises:
        SettingError: see `SweepStudy`; or the folder holds a sweep with other settings, or another process runs it.
    """
    check_fits(base, read_pool_set(base.data))
    with claimed(settings, surroundings.runs, fresh=fresh) as folder:
        study = SweepStudy(folder, space, base.settings, plan.num_trials)
        table = TrialTable(folder, study)
        table.write()
        plan.on_start(folder, study.num_trials)
        if study.num_missing:
            _run_trials(folder, study, table, base, surroundings, plan)
        _finish(folder, study, table, base, surroundings, plan)
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
            "Give --fresh to replace that sweep, or another --experiment to keep both."
        )
    if different == ["space_digest"]:
        raise SettingError(
            f"the space `{settings.space}` was edited since the sweep in {folder.path} began. "
            "Give --fresh to replace that sweep, or another --experiment to keep both."
        )
    if different:
        raise SettingError(
            f"{folder.path} holds a sweep with other settings ({', '.join(different[:5])}). "
            "Give --fresh to replace it, or another --experiment to keep both."
        )


def _run_trials(
    folder: SweepFolder, study: SweepStudy, table: TrialTable, base: RunSettings, surroundings: Surroundings, plan: Plan
) -> None:
    os.environ.update(_TUNE_ENVIRONMENT)
    from ray import tune

    from icalib.distributed.searcher import StudySearcher

    def as_config(proposal: Proposal) -> dict[str, Any]:
        job = TrialJob(
            folder=folder.path,
            number=proposal.number,
            runs=surroundings.runs,
            settings=trial_settings(folder, base, proposal.number, proposal.method),
            steps_a_seed=_steps_a_seed(base),
            resources=plan.each,
            keep_checkpoints=plan.keep == "all",
            command=surroundings.command,
        )
        return {"job": job.model_dump_json()}

    def on_begin(proposal: Proposal) -> None:
        table.write()
        push_record(folder)  # what was asked for must not be forgotten: the trial's folder has its number
        plan.on_begin(proposal)

    def on_end(number: int) -> None:
        table.write()
        push_record(folder)
        plan.on_end(number)

    searcher = StudySearcher(study, as_config, on_begin, on_end)
    tune.Tuner(
        # A trial waits for its training workers and must not hold what they need; Tune wants it to hold something.
        tune.with_resources(_run_trial, {"cpu": 0, "memory": 64 * 2**20, **_place(folder)}),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=study.num_missing,
            max_concurrent_trials=plan.concurrent,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(name=_TUNE, storage_path=str(folder.path), verbose=0),
    ).fit()
    shutil.rmtree(folder.path / _TUNE, ignore_errors=True)
    if searcher.refusal is not None:
        raise searcher.refusal


def _place(folder: SweepFolder) -> dict[str, float]:
    """Where trials run: anywhere, or beside the driver where their journal lies on its disk alone.

    What trains and scores for them runs anywhere in any case.
    """
    import ray

    return {f"node:{ray.util.get_node_ip_address()}": 1e-3} if is_mirrored(folder.path) else {}


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


def _run_trial(config: dict[str, Any]) -> None:
    """The process of a trial."""
    from ray import tune

    # Other trials may use all there is for a while: wait for it rather than fail.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(24 * 3600))
    tune.report(run_seeds(TrialJob.model_validate_json(config["job"])))


def run_seeds(job: TrialJob) -> dict[str, Any]:
    """Run a trial with each seed; what the study is to be told of it: `state` with `values` or `error`."""
    folder = SweepFolder(job.folder)
    settings = folder.settings
    rungs, metric = Rungs(folder, job.number), next(iter(settings.metrics))
    finished: list[RunFolder] = []
    try:
        for seed in range(1, settings.seeds + 1):
            last_step = seed * job.steps_a_seed
            steps = range(last_step - job.steps_a_seed + 1, last_step)
            watcher = EpochReports(rungs, metric, settings.metrics[metric], steps)
            finished.append(_run_seed(job, folder, seed, watcher))
            if seed < settings.seeds:  # after the last there is nothing to stop
                rungs.report(last_step, _mean(finished, "validation", metric)[0])
    except Abandoned:
        return {"state": "pruned"}
    except IcalibError as error:
        return {"state": "failed", "error": str(error)}
    except Exception as error:
        return {"state": "failed", "error": f"{type(error).__name__}: {error}"}
    values = [_mean(finished, "validation", metric)[0] for metric in settings.metrics]
    if any(map(math.isnan, values)):
        return {"state": "failed", "error": f"{', '.join(settings.metrics)} on validation is not a number: {values}"}
    return {"state": "complete", "values": values}


def _steps_a_seed(base: RunSettings) -> int:
    """One report an epoch, and the mean over the seeds so far when the seed is over."""
    return 1 + _num_epochs(base.settings)


def _num_epochs(method: Method | Untrained) -> int:
    return method.regime.num_epochs() if isinstance(method, Method) else 0


def _run_seed(job: TrialJob, folder: SweepFolder, seed: int, watcher: EpochReports) -> RunFolder:
    surroundings = Surroundings(
        runs=job.runs,
        resources=job.resources,
        reporter=_Quiet(),
        on_update=lambda _folder: None,
        on_epochs=watcher.validated,
        command=job.command,
        evaluated=("validation",),
        keep_checkpoints=job.keep_checkpoints,
    )
    settings = job.settings.model_copy(update={"seed": seed})
    return run(settings, surroundings, folder=folder.run_folder(job.number, seed))


class EpochReports:
    """Reports the figures of one seed's run: after each epoch, the best on validation since its training began.

    Trainings take steps for their most epochs in the order in which they begin, so that early stopping in one shifts
    none. Epochs for which no steps are left, in trials that tune their number, are not reported.
    """

    def __init__(self, rungs: Rungs, metric: str, direction: Direction, steps: range) -> None:
        self._rungs, self._tag = rungs, metric_tag(metric)
        self._better = max if direction == "maximize" else min
        self._left = steps
        self._steps: dict[str, range] = {}
        self._num_told: Counter[str] = Counter()
        self._stopped: Abandoned | None = None
        self._alone = threading.Lock()

    def validated(self, name: str, epochs: int, points: Sequence[dict[str, Any]]) -> None:
        """Report the epochs that are new.

        Raises:
            Abandoned: the trial is stopped; whoever asks again hears it again.
        """
        figures = [point["value"] for point in points if point["tag"] == self._tag]
        best = list(itertools.accumulate(figures, self._better))
        with self._alone:
            if name not in self._steps:
                self._steps[name], self._left = self._left[:epochs], self._left[epochs:]
            if self._stopped is not None:
                raise self._stopped
            new = slice(self._num_told[name], len(best))
            self._num_told[name] = len(best)
            try:
                for step, figure in zip(self._steps[name][new], best[new], strict=False):
                    self._rungs.report(step, figure)
            except Abandoned as error:
                self._stopped = error
                raise


class _Quiet:
    """The process of a trial talks to nobody; its run folder tells."""

    def stage(self, name: str, detail: str) -> None: ...

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None: ...

    def finished(self, name: str, seconds: float, reused: bool) -> None: ...

    def message(self, text: str) -> None: ...


def _mean(runs: Sequence[RunFolder], split: str, metric: str) -> tuple[float, float]:
    return mean_and_deviation([float(folder.result[split][metric]) for folder in runs])


def _finish(
    folder: SweepFolder, study: SweepStudy, table: TrialTable, base: RunSettings, surroundings: Surroundings, plan: Plan
) -> None:
    """The winner gets its test figures and its model; then the models that only others need go."""
    winner = study.winner()
    if winner is not None:
        method = with_settings(base.settings, settings_of(winner))
        settings = trial_settings(folder, base, winner.number, method)
        runs = _run_winner(folder, settings, surroundings)
        folder.write_best(_best(folder, winner.number, settings_of(winner), runs))
    table.write()
    if winner is not None and plan.keep == "best":
        _remove_other_models(folder, study, winner.number)


def _run_winner(folder: SweepFolder, settings: RunSettings, surroundings: Surroundings) -> list[RunFolder]:
    if not all(_is_run_of(path, settings) for path in folder.best_config_path.parent.glob("s*")):
        folder.forget_best()  # more trials, another winner; or it was being forgotten when the sweep was killed
    quiet = replace(surroundings, reporter=_Quiet())
    seeds = range(1, folder.settings.seeds + 1)
    runs = [run(settings.model_copy(update={"seed": n}), quiet, folder=folder.best_run(n)) for n in seeds]
    shutil.copyfile(runs[0].path / "config.yaml", folder.best_config_path)
    return runs


def _is_run_of(path: Path, settings: RunSettings) -> bool:
    return (path / "config.yaml").is_file() and RunFolder(path).config["method"] == settings.method


def _best(folder: SweepFolder, number: int, params: dict[str, Any], runs: Sequence[RunFolder]) -> Best:
    metrics = dict.fromkeys((*known_metrics(), *folder.settings.metrics))
    by_split = {split: {metric: _mean(runs, split, metric) for metric in metrics} for split in ("validation", "test")}
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
