"""What training and scoring may use. Every process of a cluster imports this module, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Resources:
    """Resources of training and scoring."""

    num_workers: int  # for training
    use_gpu: bool  # for training workers and scoring tasks
    cpus_per_worker: int  # and threads
    num_scorers: int  # scoring tasks at a time
    workers_per_gpu: int = 1  # training workers, or scoring tasks, that share a GPU
    num_cpu_tasks: int | None = None  # at a time, of those without a model; None: as many as scoring tasks

    @property
    def num_gpus(self) -> float:
        """GPUs of a worker or task that uses any; Ray rounds to ten-thousandths, also up."""
        return 10_000 // self.workers_per_gpu / 10_000 if self.use_gpu else 0.0

    def shared_by(self, number: int) -> tuple[Resources, int]:
        """Return the resources of each of `number` parallel trainings, and how many of them fit at a time."""
        if self.num_workers > 1:
            each = max(1, self.num_workers // number)
            return replace(self, num_workers=each), self.num_workers // each
        if self.use_gpu:
            return self, 1
        each = max(1, self.cpus_per_worker // number)
        return replace(self, cpus_per_worker=each), self.cpus_per_worker // each
