"""One trial of a sweep: its runs, and what the study is told while they are under way."""

from __future__ import annotations

import itertools
import math
import statistics
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from icalib.core.component import Settings
from icalib.core.errors import Abandoned, IcalibError
from icalib.core.events import EpochFinished, Event
from icalib.core.paths import Stored
from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import metric_tag
from icalib.metrics.metric import Direction
from icalib.pipeline.executor import Executor
from icalib.pipeline.resources import Resources
from icalib.pipeline.run import RunContext, RunSettings, run
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.study import Rungs


class TrialJob(Settings):
    """What the process of a trial receives."""

    folder: Stored
    number: int
    runs: Stored
    settings: RunSettings
    """Those of the first seed."""
    steps_a_seed: int
    """Steps between the reports of one seed and the next, so that a step means the same in all trials."""
    resources: Resources
    command: str


def run_seeds(job: TrialJob, executor: Executor) -> dict[str, Any]:
    """Run a trial with each seed; return what the study is told of it: `state` with `values` or `error`."""
    folder = SweepFolder(job.folder)
    settings = folder.settings
    rungs, metric = Rungs(folder, job.number), next(iter(settings.metrics))
    finished: list[RunFolder] = []
    try:
        for seed in range(1, settings.seeds + 1):
            last_step = seed * job.steps_a_seed
            steps = range(last_step - job.steps_a_seed + 1, last_step)
            reports = EpochReports(rungs, metric, settings.metrics[metric], steps)
            finished.append(_run_seed(job, folder, seed, executor, reports))
            if seed < settings.seeds:  # after the last there is nothing to stop
                rungs.report(last_step, mean_of(finished, "validation", metric)[0])
    except Abandoned:
        return {"state": "pruned"}
    except IcalibError as error:
        return {"state": "failed", "error": str(error)}
    except Exception as error:
        return {"state": "failed", "error": f"{type(error).__name__}: {error}"}
    values = [mean_of(finished, "validation", metric)[0] for metric in settings.metrics]
    if any(map(math.isnan, values)):
        return {"state": "failed", "error": f"{', '.join(settings.metrics)} on validation is not a number: {values}"}
    return {"state": "complete", "values": values}


def _run_seed(job: TrialJob, folder: SweepFolder, seed: int, executor: Executor, reports: EpochReports) -> RunFolder:
    context = RunContext(
        runs=job.runs,
        executor=executor,
        emit=reports,  # the run folder is the record
        command=job.command,
        evaluated=("validation",),
        keep_checkpoints=False,
    )
    return run(job.settings.model_copy(update={"seed": seed}), context, folder=folder.run_folder(job.number, seed))


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
        self._alone = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Report the epochs that are new; once the trial is stopped, every event of an epoch raises Abandoned."""
        if not isinstance(event, EpochFinished):
            return
        points = [point for point in event.points if point["tag"] == self._tag]
        best = list(itertools.accumulate((point["value"] for point in points), self._better))
        best = best[sum(point["epoch"] == 0 for point in points) :]  # the start counts, but is no epoch
        with self._alone:
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
    values = [float(folder.result[split][metric]) for folder in runs]
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
