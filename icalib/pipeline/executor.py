"""Who carries out jobs: the `Executor` protocol, and `LocalExecutor`, which works in this process.

`icalib.distributed.executor.RayExecutor` is what users run by default; `icalib.pipeline.counting.CountingExecutor`
counts what a run would take. All of them get the same jobs, so what is planned has the digests of what runs.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self, final

import torch
from torch import Tensor

from icalib.core.events import Emit, EpochFinished, Message, Progress
from icalib.core.files import write_json
from icalib.core.job import LocalJob, ShardedJob
from icalib.core.stage_cache import RESUME
from icalib.core.storage import remove
from icalib.models.memory import explained_shortage
from icalib.models.model import Model
from icalib.training.job import TrainingJob, run_training
from icalib.training.local_engine import LocalEngine
from icalib.training.posterior import complete_posterior, run_here

SPECTRAL_NORMS = "spectral_norms.json"
"""Norms of the bounded layers before training, by layer; only where the encoder's weights are bounded."""


@dataclass(frozen=True)
class Resources:
    """What training and scoring may use.

    Args:
        num_workers: training workers.
        use_gpu: one GPU a training worker, and scoring tasks on GPUs.
        cpus_per_worker: CPU cores (and threads) of a training worker.
        num_scorers: scoring tasks at a time.
    """

    num_workers: int
    use_gpu: bool
    cpus_per_worker: int
    num_scorers: int

    def shared_by(self, number: int) -> tuple[Resources, int]:
        """What each of `number` trainings side by side may use, and how many fit at a time."""
        if self.num_workers > 1:
            each = max(1, self.num_workers // number)
            return replace(self, num_workers=each), self.num_workers // each
        if self.use_gpu:
            return self, 1
        each = max(1, self.cpus_per_worker // number)
        return replace(self, cpus_per_worker=each), self.cpus_per_worker // each


class Executor(Protocol):
    """Carries out jobs; what they leave in `folder` is the result.

    A folder may hold what an earlier, interrupted try left: it is resumed. Progress is emitted under the name of the
    `stage`.
    """

    @property
    def resources(self) -> Resources:
        """What it works with."""
        ...

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Train; leaves checkpoint/ (the best weights), curve.json and result.json.

        Raises:
            Abandoned: a consumer of the events ended it.
            IcalibError: it failed for good, or for a reason that only a user can remove.
        """
        ...

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute every shard whose file is missing.

        Raises:
            IcalibError: a shard failed.
        """
        ...

    def compute(self, job: LocalJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute in this process."""
        ...

    def side_by_side(self, number: int) -> tuple[Self, int]:
        """An executor for each of `number` trainings at the same time, and how many fit at a time."""
        ...


@final
class LocalExecutor:
    """Works in this process, one thing at a time: breakpoints stop where they are set, and no Ray is started.

    Scores are the same to the bit as with any other executor, training with one worker the same to rounding.

    Args:
        device: where models are; None takes the GPU if there is one.
        num_threads: threads of training; None takes all CPU cores.
    """

    def __init__(self, device: torch.device | None = None, num_threads: int | None = None) -> None:
        self._device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        threads = num_threads or os.cpu_count() or 1
        self.resources = Resources(1, self._device.type == "cuda", cpus_per_worker=threads, num_scorers=1)

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Train with plain torch."""

        def make_engine(model: Model, settings: Any) -> LocalEngine:
            return LocalEngine(model, settings, self._device, folder / RESUME)

        def make_observer(model: Model) -> _Observer:
            return _Observer(job, model, folder, stage, emit)

        with _threads(self.resources.cpus_per_worker):
            run_training(job, folder, self._device, make_engine, make_observer)
            complete_posterior(job, folder, run_here)
        remove(folder / RESUME)

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute one shard after the other."""
        shards = job.shards()
        device = self._device if job.uses_models else torch.device("cpu")
        with _threads(job.num_threads), explained_shortage(job.verb, job.memory_advice):
            for index, shard in enumerate(shards):
                emit(Progress(stage, index, len(shards), "shards"))
                if not job.shard_path(folder, index).is_file():
                    job.compute_shard(index, shard, folder, device)
        emit(Progress(stage, len(shards), len(shards), "shards"))
        job.finish(folder)

    def compute(self, job: LocalJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute."""
        job.compute(folder, stage, emit)

    def side_by_side(self, number: int) -> tuple[LocalExecutor, int]:
        """One training after the other."""
        return self, 1


class _Observer:
    """Emits what rank 0 observes, and keeps the best weights."""

    def __init__(self, job: TrainingJob, model: Model, folder: Path, stage: str, emit: Emit) -> None:
        self._job, self._model, self._folder, self._stage, self._emit = job, model, folder, stage, emit

    def spectral_norms(self, norms: Mapping[str, float]) -> None:
        write_json(self._folder / SPECTRAL_NORMS, dict(norms))
        self._emit(norms_message(self._stage, norms))

    def progress(self, done: float, total: float, note: str) -> None:
        self._emit(Progress(self._stage, done, total, note))

    def best(self, weights: dict[str, Tensor]) -> None:
        self._model.save(self._folder / "checkpoint", weights)

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        if self._job.reports_epochs:
            self._emit(EpochFinished(self._stage, self._job.loop_settings.epochs, points))


def norms_message(stage: str, norms: Mapping[str, float]) -> Message:
    """How far the encoder's layers were from their bound: too tight a bound shows before training is over."""
    return Message(
        f"{stage}: {len(norms)} layers had spectral norms from {min(norms.values()):.2f} to {max(norms.values()):.2f} "
        f"before their bound; all are in {SPECTRAL_NORMS} beside the checkpoint"
    )


@contextmanager
def _threads(number: int) -> Generator[None, None, None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
