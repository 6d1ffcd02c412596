"""How often a training is tried when workers die, and with how many; no Ray is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.train_jobs import train_job

from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import write_json
from icalib.distributed import training
from icalib.distributed.training import train
from icalib.pipeline.resources import Resources
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


def checkpoint_then_death(folder: Path, number: int) -> Callable[[], None]:
    def fail() -> None:
        (folder / "ray" / f"checkpoint_{number:03d}").mkdir(parents=True)
        worker_dies()

    return fail


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> Callable[..., list[int]]:
    """Train through given outcomes on a cluster with room for so many workers; the workers of each fit."""

    def fit(*outcomes: Callable[[], None], room: int = 2, zero_stage: int = 0) -> list[int]:
        attempts = Attempts(*outcomes)
        monkeypatch.setattr(training, "_attempt", attempts)
        monkeypatch.setattr(training, "room_for_workers", lambda resources: room)
        job = train_job(tiny_pools, tiny_bert, tmp_path, zero_stage=zero_stage)
        train(job, tmp_path, TWO_WORKERS, "teacher", ignore)
        return attempts.workers

    return fit


def test_deaths_are_survived_with_as_many_workers(fit: Callable[..., list[int]]) -> None:
    assert fit(worker_dies, worker_dies, worker_dies, succeeds) == [2, 2, 2, 2]


def test_the_fourth_death_without_progress_is_the_last(fit: Callable[..., list[int]]) -> None:
    with pytest.raises(IcalibError, match=r"(?s)after 3 retries.*a worker died.*last checkpoint"):
        fit(worker_dies, worker_dies, worker_dies, worker_dies)


def test_a_training_that_moves_on_may_fail_often(fit: Callable[..., list[int]], tmp_path: Path) -> None:
    assert fit(*(checkpoint_then_death(tmp_path, n) for n in range(9)), succeeds) == [2] * 10


@pytest.mark.parametrize(("zero_stage", "workers"), [(0, [2, 2, 1]), (2, [2, 2, 2])])
def test_fewer_workers_go_on_when_nobody_takes_the_place_of_the_lost_unless_they_have_shards(
    fit: Callable[..., list[int]], zero_stage: int, workers: list[int]
) -> None:
    assert fit(worker_dies, nobody_comes, succeeds, room=1, zero_stage=zero_stage) == workers


def test_busy_nodes_are_waited_for(fit: Callable[..., list[int]]) -> None:
    assert fit(nobody_comes, nobody_comes, succeeds, room=2) == [2, 2, 2]


def test_training_without_any_node_says_how_to_resume(fit: Callable[..., list[int]]) -> None:
    with pytest.raises(IcalibError, match=r"needs 2 workers, and the nodes that are left have room for 0.*--workers"):
        fit(worker_dies, *[nobody_comes] * 3, room=0)
