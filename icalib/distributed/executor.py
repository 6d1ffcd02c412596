"""The default executor: training by Ray Train and DeepSpeed, shards as Ray tasks."""

from __future__ import annotations

from pathlib import Path
from typing import final

from icalib.core.events import Emit
from icalib.core.job import ShardedJob
from icalib.distributed.shards import map_shards
from icalib.distributed.training import train
from icalib.pipeline.resources import Resources
from icalib.training.job import TrainingJob


@final
class RayExecutor:
    """Executor on the Ray cluster that this process has joined (see `icalib.distributed.session`).

    Args:
        resources: what trainings and scoring tasks may use.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Train with Ray Train and DeepSpeed."""
        train(job, folder, self.resources, stage, emit)

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute shards as Ray tasks."""
        map_shards(job, folder, self.resources, stage, emit)

    def side_by_side(self, number: int) -> tuple[RayExecutor, int]:
        """Return an executor for each of `number` concurrent trainings, and how many of them run at a time."""
        resources, room = self.resources.shared_by(number)
        return RayExecutor(resources), room
