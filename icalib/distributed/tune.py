"""Sweeps by Ray Tune: trials run concurrently, and each is a driver that starts its own Ray Train runs."""

from __future__ import annotations

import logging
import os
import shutil
import time
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher
from typing_extensions import override

from icalib.core.storage import is_mirrored
from icalib.distributed.executor import RayExecutor
from icalib.distributed.session import check_alive, component_of_this_node
from icalib.sweeps.sweep import TrialJob, Trials, run_seeds

_FOLDER = ".tune"
_WATCH_EVERY_S = 2.0
_ENVIRONMENT = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends a sweep as it ends a run
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # results are kept in the run folders
    "RAY_AIR_NEW_OUTPUT": "0",  # its tables are printed to standard output at any verbosity
}


def run_by_tune(trials: Trials) -> None:
    """Run the missing trials, at most `plan.concurrent` at a time."""
    os.environ.update(_ENVIRONMENT)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the study has what failed, in fewer words
    folder = trials.folder
    # A journal that is only on the driver's disk keeps the trials on its node; their workers and tasks run anywhere.
    here = {f"node:{ray.util.get_node_ip_address()}": 1e-3} if is_mirrored(folder.path) else {}
    tune.Tuner(
        # A trial waits for its training workers, so it must not reserve what they need; Tune requires some resource.
        tune.with_resources(_run_trial, {"cpu": 0, "memory": 64 * 2**20, **here}),
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(trials),
            num_samples=trials.num_missing,
            max_concurrent_trials=trials.plan.concurrent,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(name=_FOLDER, storage_path=str(folder.path), verbose=0, callbacks=[_NodeWatch()]),
    ).fit()
    shutil.rmtree(folder.path / _FOLDER, ignore_errors=True)


class _NodeWatch(tune.Callback):
    """Ends the sweep when its own node has died: Tune would wait forever for a place to run the next trial."""

    def __init__(self) -> None:
        self._node, self._next = ray.get_runtime_context().get_node_id(), 0.0

    @override
    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        if time.monotonic() > self._next:
            self._next = time.monotonic() + _WATCH_EVERY_S
            check_alive(self._node)


def _run_trial(config: dict[str, Any]) -> None:
    with component_of_this_node():
        job = TrialJob.model_validate_json(config["job"])
    tune.report(run_seeds(job, RayExecutor(job.resources)))


class StudySearcher(Searcher):
    """Search algorithm that passes the trials of an Optuna study to Ray Tune and reports their outcomes to the study.

    Ray's OptunaSearch pickles its trials every ten seconds, so that a killed sweep would repeat some and lose others.
    Here Optuna's journal is the only record: trials that were running when the driver died, or failed, come first.
    """

    def __init__(self, trials: Trials) -> None:
        super().__init__()
        self._trials = trials
        self._numbers: dict[str, int] = {}

    @override
    def suggest(self, trial_id: str) -> Any:
        job = self._trials.next()
        if job is None:
            return self.FINISHED
        self._numbers[trial_id] = job.number
        return {"job": job.model_dump_json()}

    @override
    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._numbers.pop(trial_id, None)
        if number is not None:  # Tune calls it again if it fails
            self._trials.finish(number, None if error else result)

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its search algorithm, and this one is never restored from that

    @override
    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the journal has everything."""

    @override
    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the journal has everything."""
