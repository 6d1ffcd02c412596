"""Who gets which GPU on a cluster with GPUs, which are numbers here: two nodes of four cores and two GPUs each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.gpus import Chains, Letters, compute_nothing, read_lines, run_trial_of_nothing, train_nothing
from distributed.nodes import Nodes, cluster_of_its_own
from helpers.train_jobs import train_job

from icalib.core.events import ignore
from icalib.distributed import session, shards, training
from icalib.pipeline.resources import Resources

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NODE = {"num_cpus": 4, "num_gpus": 2}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster_of_its_own() as nodes:
        nodes.are(NODE, NODE)
        yield nodes


def meeting(folder: Path, number: int) -> Path:
    """A folder for the traces of processes of which so many must run at the same time."""
    (folder / "meet").write_text(str(number))
    return folder


def check_gpus(lines: list[dict[str, Any]], per_gpu: int = 1) -> None:
    """Check that each process had (a part of) one GPU, which CUDA would show it, and as many as planned shared one."""
    for line in lines:
        assert line["num_gpus"] == pytest.approx(1 / per_gpu)
        assert len(line["gpus"]) == 1
        assert line["gpus"][0] in line["visible"].split(",")
    for one in lines:
        began = one["span"][0]
        beside = [line for line in lines if line["span"][0] <= began < line["span"][1] and gpu(line) == gpu(one)]
        assert len(beside) <= per_gpu


def gpu(line: dict[str, Any]) -> tuple[str, str]:
    return line["node"], line["gpus"][0]


def test_a_run_plans_a_worker_and_a_scorer_for_each_gpu(nodes: Nodes) -> None:
    assert session.available() == Resources(num_workers=4, use_gpu=True, cpus_per_worker=1, num_scorers=4)
    assert session.available(2) == Resources(num_workers=2, use_gpu=True, cpus_per_worker=3, num_scorers=4)


def test_a_sweep_plans_a_gpu_for_each_trial(nodes: Nodes) -> None:
    each, concurrent = session.available_to_trials()
    assert concurrent == 4
    assert each == Resources(num_workers=1, use_gpu=True, cpus_per_worker=1, num_scorers=1)


def test_each_training_worker_has_a_gpu_of_its_own_and_the_planned_cores(
    nodes: Nodes, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray.train.torch as ray_torch
    from ray.train.torch import TorchConfig, TorchTrainer

    class OnGloo(TorchTrainer):
        """NCCL, which Ray takes where workers have GPUs, needs actual ones."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs, torch_config=TorchConfig(backend="gloo"))

    monkeypatch.setattr(ray_torch, "TorchTrainer", OnGloo)
    monkeypatch.setattr(training, "_worker", train_nothing)
    folder = meeting(tmp_path, 4)
    training._fit(train_job(tiny_pools, tiny_bert, tmp_path), folder, session.available())
    workers = read_lines(folder / "trace")
    assert sorted(worker["rank"] for worker in workers) == [0, 1, 2, 3]
    assert {worker["num_cpus"] for worker in workers} == {1.0}
    assert {worker["threads"] for worker in workers} == {1}
    check_gpus(workers)
    # All GPUs of its node are visible to a worker, so that they can exchange gradients directly.
    assert {worker["visible"] for worker in workers} == {"0,1"}
    assert len(set(map(gpu, workers))) == 4


def test_each_scoring_task_has_a_gpu_and_all_gpus_score_at_the_same_time(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_compute_shards", compute_nothing)
    folder = meeting(tmp_path, 4)
    shards.map_shards(Letters(number=64), folder, session.available(), "scores", ignore)
    tasks = read_lines(folder / "trace")
    assert sorted(number for task in tasks for number in task["shards"]) == list(range(64))
    assert {len(task["shards"]) for task in tasks} == {4}  # a GPU task loads the model for several shards
    check_gpus(tasks)
    assert {task["visible"] for task in tasks} == {"0", "1"}
    assert len(set(map(gpu, tasks))) == 4
    assert {task["num_cpus"] for task in tasks} == {0.0}


def test_chains_have_a_gpu_each(nodes: Nodes, tmp_path: Path) -> None:
    folder = meeting(tmp_path, 4)
    tasks = [Chains(folder, number) for number in range(6)]
    assert training._run_tasks(folder, session.available(), tasks) == list(range(6))
    chains = read_lines(folder / "trace")
    check_gpus(chains)
    assert len(set(map(gpu, chains))) == 4


@pytest.mark.parametrize(("asked", "per_gpu"), [(None, 1), (8, 2)])
def test_trials_hold_no_gpu_and_their_tasks_the_planned_part_of_one(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, per_gpu: int
) -> None:
    from icalib.distributed import tune

    monkeypatch.setattr(tune, "_run_trial", run_trial_of_nothing)
    each, concurrent = session.available_to_trials(concurrent=asked)
    assert (concurrent, each.workers_per_gpu) == (4 * per_gpu, per_gpu)
    folder = meeting(tmp_path, concurrent)
    trials = Trials(folder, concurrent, [{"folder": str(folder), "resources": asdict(each)}] * concurrent)
    tune.run_by_tune(trials)
    assert sorted(trials.finished) == list(range(concurrent))
    drivers, tasks = read_lines(folder / "trials"), read_lines(folder / "trace")
    assert {(driver["num_gpus"], driver["num_cpus"]) for driver in drivers} == {(0.0, 0.0)}
    check_gpus(tasks, per_gpu)
    assert len(set(map(gpu, tasks))) == 4


class Trials:
    """What Tune is given instead of a study's trials."""

    def __init__(self, folder: Path, concurrent: int, jobs: list[dict[str, Any]]) -> None:
        self.folder, self.plan = SimpleNamespace(path=folder), SimpleNamespace(concurrent=concurrent)
        self.num_missing = len(jobs)
        self._jobs = list(enumerate(jobs))
        self.finished: dict[int, Any] = {}

    def next(self) -> Any:
        if not self._jobs:
            return None
        number, job = self._jobs.pop(0)
        return SimpleNamespace(number=number, model_dump_json=lambda: json.dumps({**job, "number": number}))

    def finish(self, number: int, outcome: Any) -> None:
        self.finished[number] = outcome
