"""Ray Tune runs the trials of a sweep side by side; each is a driver that starts its own Ray Train runs."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from icalib.core.storage import is_mirrored
from icalib.distributed.executor import RayExecutor
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.sweep import Trials
from icalib.sweeps.trial import TrialJob, run_seeds

_FOLDER = ".tune"
_ENVIRONMENT = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends a sweep as it ends a run
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the run folders are the record
    "RAY_AIR_NEW_OUTPUT": "0",  # its boxes go to standard output whatever the verbosity
}


def run_by_tune(trials: Trials) -> None:
    """Run the trials that are missing, as many at a time as the plan says."""
    os.environ.update(_ENVIRONMENT)
    folder = trials.folder
    tune.Tuner(
        # A trial waits for its training workers and must not hold what they need; Tune wants it to hold something.
        tune.with_resources(_run_trial, {"cpu": 0, "memory": 64 * 2**20, **_where(folder)}),
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(trials),
            num_samples=trials.num_missing,
            max_concurrent_trials=trials.plan.concurrent,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(name=_FOLDER, storage_path=str(folder.path), verbose=0),
    ).fit()
    shutil.rmtree(folder.path / _FOLDER, ignore_errors=True)


def _where(folder: SweepFolder) -> dict[str, float]:
    """Where trials run: anywhere, or beside the driver where their journal is on its disk alone.

    What trains and scores for them runs anywhere in any case.
    """
    import ray

    return {f"node:{ray.util.get_node_ip_address()}": 1e-3} if is_mirrored(folder.path) else {}


def _run_trial(config: dict[str, Any]) -> None:
    """The process of a trial."""
    # Other trials may use all there is for a while: wait for it rather than fail.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(24 * 3600))
    job = TrialJob.model_validate_json(config["job"])
    tune.report(run_seeds(job, RayExecutor(job.resources)))


class StudySearcher(Searcher):
    """Hands a study's trials to Ray Tune and reports what became of them.

    Ray's OptunaSearch knows its trials only in memory and in a pickle of every ten seconds, so a killed sweep would
    repeat some and lose others. Here Optuna's journal alone is the record: what is reported is kept, and trials that
    were under way when the driver died, or failed in an earlier call, are the first to be handed out again, under the
    same number.
    """

    def __init__(self, trials: Trials) -> None:
        super().__init__()
        self._trials = trials
        self._numbers: dict[str, int] = {}

    def suggest(self, trial_id: str) -> Any:
        """The next trial."""
        job = self._trials.next()
        if job is None:
            return self.FINISHED
        self._numbers[trial_id] = job.number
        return {"job": job.model_dump_json()}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Report a trial's outcome."""
        self._trials.finish(self._numbers.pop(trial_id), None if error else result)

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles what it is given, and nothing reads that."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """The journal is all there is to save."""

    def restore(self, checkpoint_path: str) -> None:
        """And all there is to restore."""
