"""The `Executor` protocol, which runs jobs, and `LocalExecutor`, which runs them in this process.

`icalib.distributed.executor.RayExecutor` is the default of users. All executors get the same jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, final

import torch
from torch import Tensor

from icalib.core.events import Emit, EpochFinished, Progress
from icalib.core.job import ShardedJob
from icalib.core.process import usable_cores
from icalib.core.stage_cache import RESUME
from icalib.core.storage import remove
from icalib.models.memory import reraise_oom
from icalib.models.model import Model
from icalib.models.threads import num_threads
from icalib.stages.resources import Resources
from icalib.training.job import TrainingJob, complete_posterior, run_here, run_training
from icalib.training.local_engine import LocalEngine


class Executor(Protocol):
    """Runs jobs, which write their results to `folder`.

    If the folder has files of an interrupted attempt, the job resumes from them. `stage` is named by progress events.
    """

    @property
    def resources(self) -> Resources:
        """Resources that jobs may use."""
        ...

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Train, and write checkpoint/ (the best weights), curve.json and result.json.

        `Abandoned` is raised if a consumer of the events ended the training, another error if all attempts failed.
        """
        ...

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute the shards whose files are missing."""
        ...

    def split(self, number: int) -> tuple[Self, int]:
        """Return an executor for each of `number` parallel trainings, and how many of them fit at a time."""
        ...


@final
class LocalExecutor:
    """Runs jobs sequentially in this process, without Ray, so that breakpoints work.

    Scores are bit-identical to those of other executors; training with one worker is equal up to rounding. Models are
    on the GPU if there is one and no other device is named; training uses all CPU cores that it may, or `num_threads`.
    """

    def __init__(self, device: torch.device | None = None, num_threads: int | None = None) -> None:
        self._device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        threads = num_threads or usable_cores()
        self.resources = Resources(1, self._device.type == "cuda", cpus_per_worker=threads, num_scorers=1)

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Train with plain torch."""

        def make_engine(model: Model, settings: Any) -> LocalEngine:
            return LocalEngine(model, settings, self._device, folder / RESUME)

        def make_observer(model: Model) -> _Observer:
            return _Observer(job, model, folder, stage, emit)

        with num_threads(self.resources.cpus_per_worker):
            run_training(job, folder, self._device, make_engine, make_observer)
            complete_posterior(job, folder, run_here)
        remove(folder / RESUME)

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute the shards sequentially."""
        shards = job.shards()
        device = self._device if job.uses_models else torch.device("cpu")
        with num_threads(1), reraise_oom(job.verb, job.memory_advice):
            for index, shard in enumerate(shards):
                emit(Progress(stage, index, len(shards), "shards"))
                if not job.shard_path(folder, index).is_file():
                    job.compute_shard(index, shard, folder, device)
        emit(Progress(stage, len(shards), len(shards), "shards"))
        job.finish(folder)

    def split(self, number: int) -> tuple[LocalExecutor, int]:
        """Return this executor, which runs one training at a time."""
        return self, 1


class _Observer:
    """Emits the progress of rank 0 as events, and saves the best weights."""

    def __init__(self, job: TrainingJob, model: Model, folder: Path, stage: str, emit: Emit) -> None:
        self._job, self._model, self._folder, self._stage, self._emit = job, model, folder, stage, emit

    def progress(self, done: float, total: float, note: str) -> None:
        self._emit(Progress(self._stage, done, total, note))

    def best(self, weights: dict[str, Tensor]) -> None:
        self._model.save(self._folder / "checkpoint", weights)

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        if self._job.reports_epochs:
            self._emit(EpochFinished(self._stage, self._job.loop_settings.epochs, points))
