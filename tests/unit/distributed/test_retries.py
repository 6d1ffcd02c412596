"""How often a training is tried when workers die, and with how many; no Ray is started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.train_jobs import train_job

from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import write_json
from icalib.distributed import training
from icalib.distributed.checkpoints import STATE
from icalib.distributed.training import train
from icalib.stages.resources import Resources
from icalib.training.job import TrainingJob

TWO_WORKERS = Resources(num_workers=2, use_gpu=False, cpus_per_worker=1, num_scorers=2)


class Attempts:
    """Stand in for Ray: every one fails as told, the last may succeed; keeps the number of workers of each."""

    def __init__(self, *outcomes: Callable[[], None]) -> None:
        self._outcomes = list(outcomes)
        self.workers: list[int] = []

    def __call__(self, job: TrainingJob, folder: Path, resources: Resources) -> None:
        self.workers.append(resources.num_workers)
        self._outcomes.pop(0)()
        write_json(folder / "result.json", {"world_size": self.workers[-1]})


def succeeds() -> None: ...


def worker_dies() -> None:
    from ray.train import WorkerGroupError

    raise WorkerGroupError("a worker died", {0: RuntimeError("killed")})


def nobody_comes() -> None:
    from ray.train import ControllerError

    raise ControllerError(TimeoutError("no room for the workers"))


def others_are_there() -> None:
    from ray.train import ControllerError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    raise ControllerError(WorkerGroupStartupTimeoutError(2))


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> Callable[..., list[int]]:
    """Train through given outcomes on a cluster with room for so many workers; the workers of each fit."""

    def fit(*outcomes: Callable[[], None], room: int = 2, zero_stage: int = 0) -> list[int]:
        attempts = Attempts(*outcomes)
        monkeypatch.setattr(training, "_attempt", attempts)
        monkeypatch.setattr(training, "_free_what_controllers_hold", lambda: None)  # it would start a Ray
        monkeypatch.setattr(training, "room_for_workers", lambda resources: room)
        job = train_job(tiny_pools, tiny_bert, tmp_path, zero_stage=zero_stage)
        train(job, tmp_path, TWO_WORKERS, "teacher", ignore)
        return attempts.workers

    return fit


@pytest.mark.parametrize(
    ("outcomes", "room", "zero_stage", "workers"),
    [
        ([worker_dies] * 3, 2, 0, [2, 2, 2, 2]),
        ([worker_dies, nobody_comes], 1, 0, [2, 2, 1]),  # nobody takes the place of the lost
        ([worker_dies, nobody_comes], 1, 2, [2, 2, 2]),  # who have shards that others can't read
        ([nobody_comes] * 2, 2, 0, [2, 2, 2]),
        ([others_are_there] * 9, 2, 0, [2] * 10),  # the nodes are busy
        ([worker_dies, others_are_there], 1, 0, [2, 2, 1]),
    ],
)
def test_a_training_goes_on_with_the_workers_that_there_are(
    fit: Callable[..., list[int]], outcomes: list[Any], room: int, zero_stage: int, workers: list[int]
) -> None:
    assert fit(*outcomes, succeeds, room=room, zero_stage=zero_stage) == workers


@pytest.mark.parametrize(
    ("outcomes", "room", "said"),
    [
        ([worker_dies] * 4, 2, "(?s)after 3 retries.*a worker died.*last checkpoint"),
        ([worker_dies, *[nobody_comes] * 3], 0, "needs 2 workers, .* room for 0.*--workers"),
    ],
)
def test_it_gives_up_after_three_retries_without_progress(
    fit: Callable[..., list[int]], outcomes: list[Any], room: int, said: str
) -> None:
    with pytest.raises(IcalibError, match=said):
        fit(*outcomes, room=room)


def test_gpus_that_torch_can_not_use_are_no_reason_to_try_again(fit: Callable[..., list[int]]) -> None:
    def joins() -> None:
        from ray.train import ControllerError

        raise ControllerError(RuntimeError("Distributed package doesn't have NCCL built in"))

    with pytest.raises(IcalibError, match=r"GPUs that torch on their nodes can't use .*NCCL.*nvidia-smi"):
        fit(joins)


def test_a_training_that_moves_on_may_fail_often(fit: Callable[..., list[int]], tmp_path: Path) -> None:
    def checkpoint_then_death(number: int) -> None:
        (tmp_path / "ray" / f"checkpoint_{number:03d}").mkdir(parents=True)
        (tmp_path / "ray" / f"checkpoint_{number:03d}" / STATE).touch()
        worker_dies()

    assert fit(*(partial(checkpoint_then_death, number) for number in range(9)), succeeds) == [2] * 10
