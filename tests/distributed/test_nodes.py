"""Several nodes: who works where, and what a node's or a driver's death costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed.nodes import Chain, Nodes, cluster_of_its_own, compute_traced_shards, read_trace, trace_worker, where
from helpers.losses import TracedLoss
from helpers.runs import table_digest
from helpers.score_jobs import score_job
from helpers.tiny_models import tiny_ranker, token_store
from helpers.train_jobs import train_job

from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import file_digest, read_json, read_json_list
from icalib.data.pools import read_pool_set
from icalib.distributed import executor, session, training
from icalib.distributed.executor import map_shards
from icalib.distributed.training import train
from icalib.models.checkpoint import save_ranker
from icalib.parts.job import ColumnJob
from icalib.stages.resources import Resources
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.uncertainty.estimator import MCDropout

pytestmark = pytest.mark.ray

ONE_CORE, TWO_CORES = {"num_cpus": 1}, {"num_cpus": 2}
TWO_WORKERS = Resources(num_workers=2, use_gpu=False, cpus_per_worker=1, num_scorers=3)
CHECKPOINT_EVERY = 4


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster_of_its_own() as nodes:
        yield nodes


# Training


@pytest.fixture(scope="module")
def make_job(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeJob:
    return MakeJob(tiny_pools, tiny_bert, tmp_path_factory.mktemp("tokens"))


class MakeJob:
    """Training jobs that differ in what they write their trace to."""

    def __init__(self, *sources: Path) -> None:
        self._sources = sources

    def __call__(self, trace: Path, zero_stage: int = 0) -> CrossEncoderJob:
        loss = TracedLoss.Config(trace=trace, seconds=0.2)
        return train_job(
            *self._sources, loss=loss, dropout=0.1, batch_size=4, checkpoint_every=CHECKPOINT_EVERY,
            zero_stage=zero_stage,
        )  # fmt: skip


class Trained:
    """What a training left, and who did it."""

    def __init__(self, folder: Path) -> None:
        self.weights = file_digest(folder / "checkpoint" / "model.safetensors")
        self.curve = read_json_list(folder / "curve.json")
        self.result = read_json(folder / "result.json")
        self.trace = read_trace(folder / "trace")

    @property
    def nodes(self) -> dict[str, str]:
        """The node where each rank was at last."""
        return {rank: node for node, rank in self.trace}

    @property
    def updates(self) -> int:
        """What rank 0 computed, repeated work included."""
        return sum(rank == "0" for _, rank in self.trace)


def trained(make_job: MakeJob, folder: Path, resources: Resources = TWO_WORKERS) -> Trained:
    train(make_job(folder / "trace"), folder, resources, "teacher", ignore)
    return Trained(folder)


def worker_with_checkpoint(folder: Path) -> str | None:
    """The node of rank 0 as soon as Ray Train knows of a checkpoint."""
    known = folder / "ray" / "checkpoint_manager_snapshot.json"
    try:
        if not json.loads(known.read_text())["checkpoint_results"]:
            return None
    except (OSError, ValueError):  # it isn't there, or is being written
        return None
    return next(node for node, rank in read_trace(folder / "trace") if rank == "0")


@pytest.fixture(scope="module")
def calm(nodes: Nodes, make_job: MakeJob, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two workers on three nodes, undisturbed."""
    nodes.are(TWO_CORES, ONE_CORE, ONE_CORE)
    return trained(make_job, tmp_path_factory.mktemp("calm"))


@pytest.mark.nightly
def test_a_node_that_dies_in_training_costs_what_came_after_the_last_checkpoint(
    nodes: Nodes, calm: Trained, make_job: MakeJob, tmp_path: Path
) -> None:
    nodes.are(ONE_CORE, ONE_CORE, ONE_CORE)
    with nodes.one_dies(lambda: worker_with_checkpoint(tmp_path)) as killed:
        stormy = trained(make_job, tmp_path)
    assert killed[0] not in stormy.nodes.values()
    assert len(set(stormy.nodes.values())) == 2
    assert calm.updates < stormy.updates <= calm.updates + 2 * CHECKPOINT_EVERY
    assert (stormy.weights, stormy.curve) == (calm.weights, calm.curve)


@pytest.mark.nightly
def test_without_a_spare_node_training_goes_on_with_the_workers_that_are_left(
    nodes: Nodes, calm: Trained, make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "3")  # how long others may take to come
    nodes.are(ONE_CORE, ONE_CORE)
    with nodes.one_dies(lambda: worker_with_checkpoint(tmp_path)) as killed:
        stormy = trained(make_job, tmp_path)
    assert stormy.result["world_size"] == 1
    assert set(stormy.nodes.values()) - set(killed) == nodes.ids
    assert stormy.result["updates"] == calm.result["updates"]
    assert stormy.updates <= calm.updates + 2 * CHECKPOINT_EVERY


# Scoring


@pytest.fixture(scope="module")
def scoring_job(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> ColumnJob:
    folder = tmp_path_factory.mktemp("scoring")
    ranker = tiny_ranker(tiny_bert, intents=read_pool_set(tiny_pools).intents)
    save_ranker(folder / "checkpoint", ranker.config, ranker.state_dict())
    token_store(tiny_pools, "train", tiny_bert, folder)
    return score_job(folder, folder / "checkpoint", estimator=MCDropout.Config(num_passes=20), pools_per_shard=4)


class Scored:
    """What a scoring left, and where it was done."""

    def __init__(self, folder: Path) -> None:
        self.shards = sorted(folder.glob("*.parquet"))
        self.digest = table_digest(*self.shards)
        trace = read_trace(folder / "trace")
        self.nodes = {node for node, _, _ in trace}
        self.tries = Counter(int(number) for _, number, _ in trace)
        self.processes = {process for _, _, process in trace}


def scored(job: ColumnJob, folder: Path, resources: Resources) -> Scored:
    folder.mkdir(exist_ok=True)
    (folder / "meet").write_text(str(resources.num_scorers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "_compute_shards", compute_traced_shards)
        map_shards(job, folder, resources, "scores", ignore)
    return Scored(folder)


@pytest.mark.nightly
def test_scores_are_the_same_on_one_two_and_three_nodes(nodes: Nodes, scoring_job: ColumnJob, tmp_path: Path) -> None:
    digests: set[str] = set()
    for number in (1, 2, 3):
        nodes.are(*[ONE_CORE] * number)
        there = scored(scoring_job, tmp_path / str(number), session.available())
        assert there.nodes == nodes.ids
        assert set(there.tries.values()) == {1}
        digests.add(there.digest)
    assert len(digests) == 1


@pytest.mark.nightly
def test_a_node_that_dies_in_scoring_costs_the_shard_that_it_had(
    nodes: Nodes, scoring_job: ColumnJob, tmp_path: Path
) -> None:
    nodes.are(ONE_CORE, ONE_CORE, ONE_CORE)
    calm = scored(scoring_job, tmp_path / "calm", session.available())
    folder = tmp_path / "stormy"

    def node_with_unfinished_shard() -> str | None:
        trace = read_trace(folder / "trace")
        unfinished = (node for node, number, _ in trace if not scoring_job.shard_path(folder, int(number)).is_file())
        return next(unfinished, None) if len(trace) > 5 else None

    with nodes.one_dies(node_with_unfinished_shard) as killed:
        stormy = scored(scoring_job, folder, session.available())
    assert killed
    assert stormy.digest == calm.digest
    assert [path.name for path in stormy.shards] == [path.name for path in calm.shards]
    repeated = {number: tries for number, tries in stormy.tries.items() if tries > 1}
    assert len(repeated) <= 1
    assert set(repeated.values()) <= {2}


# Nodes of several kinds


@pytest.mark.nightly
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can use the GPUs here")
def test_gpus_that_torch_can_not_use_end_a_training_with_a_line_that_says_so(
    nodes: Nodes, make_job: MakeJob, tmp_path: Path
) -> None:
    nodes.are(*[{"num_cpus": 2, "num_gpus": 1}] * 2)
    with pytest.raises(IcalibError, match="Ray counts GPUs that torch on their nodes can't use"):
        train(make_job(tmp_path / "unused"), tmp_path, session.available(), "teacher", ignore)


@pytest.mark.nightly
def test_models_run_on_nodes_with_gpus_and_other_work_on_those_without(
    nodes: Nodes, make_job: MakeJob, scoring_job: ColumnJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.train import torch as ray_torch

    class Gloo(ray_torch.TorchTrainer):
        """The GPUs are only said to be there."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, torch_config=ray_torch.TorchConfig(backend="gloo"), **keywords)

    monkeypatch.setattr(ray_torch, "TorchTrainer", Gloo)
    monkeypatch.setattr(training, "_worker_of_several", trace_worker)
    without, *with_gpu = nodes.are(TWO_CORES, *[{"num_cpus": 2, "num_gpus": 1}] * 2)
    resources = session.available()
    assert resources == Resources(num_workers=2, use_gpu=True, cpus_per_worker=1, num_scorers=2, num_cpu_tasks=6)
    train(make_job(tmp_path / "unused"), tmp_path, resources, "teacher", ignore)
    assert {node for node, _ in read_trace(tmp_path / "trace")} == set(with_gpu)
    many = scored(scoring_job.model_copy(update={"pools_per_shard": 1}), tmp_path / "scores", resources)
    assert many.nodes == set(with_gpu)
    assert len(many.processes) == 2  # a process serves all tasks on a node with one GPU
    chains = training._run_tasks(tmp_path, resources, [Chain()] * 2)
    assert set(chains) == {(node, 1) for node in with_gpu}
    assert list(session.parallel_map(where, range(2))) == [without, without]
