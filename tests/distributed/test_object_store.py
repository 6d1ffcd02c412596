"""A run in a bucket on machines that share nothing else, whose driver dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed.buckets import Bucket
from distributed.drivers import ON_RAY, finish_run, kill_when
from distributed.nodes import Nodes, cluster_of_its_own
from helpers.runs import outcome_digest, run_context, small_settings

from icalib.core import storage
from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import RESUME
from icalib.core.storage import local_path, location, names_in
from icalib.data.prepare import PrepareSettings, prepare
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


class Machines:
    """Says where this process, its children and the cluster's nodes have their mirrors."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self.folder, self._environment = folder, environment

    def enter(self, name: str) -> None:
        """From now on this is another machine, with nothing on its disk but what it brought there before."""
        self._environment.setenv(storage.CACHE, str(self.folder / name))


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, environment: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path_factory.mktemp("machines"), environment)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory, environment: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = Bucket(tmp_path_factory.mktemp("server") / "log")
    for name, value in bucket.environment.items():
        environment.setenv(name, value)
    bucket.create()
    yield bucket
    bucket.close()


@pytest.fixture(scope="module")
def nodes(bucket: Bucket, machines: Machines) -> Iterator[Nodes]:
    """Two nodes of one core; every node has a disk of its own, so has this process."""
    machines.enter("head")
    with cluster_of_its_own() as nodes:
        nodes.are(*({"num_cpus": 1, "env_vars": {storage.CACHE: str(machines.folder / name)}} for name in "ab"))
        yield nodes


@pytest.fixture(scope="module")
def pools(bucket: Bucket, machines: Machines, tiny_pools: Path) -> str:
    """The tiny pools, prepared into the bucket."""
    machines.enter("prepares")
    out = local_path(f"{bucket.uri}/pools")
    prepare(tiny_pools.parent / "dialogues.jsonl", out, PrepareSettings(num_candidates=4, seed=7))
    return location(out)


def settings_for(data: Path, backbone: Path) -> RunConfig:
    return small_settings("sngp", data, backbone, domain_pretraining=None)


@pytest.fixture(scope="module")
def on_disk(nodes: Nodes, tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on a disk that all nodes share."""
    return run(settings_for(tiny_pools, tiny_bert), run_context(tmp_path_factory.mktemp("disk"), executor=ON_RAY))


@pytest.fixture(scope="module")
def in_bucket(nodes: Nodes, bucket: Bucket, machines: Machines, pools: str, tiny_bert: Path) -> RunFolder:
    """The same run in the bucket: its driver is killed in mid-training and resumed elsewhere."""
    machines.enter("first driver")
    runs = local_path(f"{bucket.uri}/runs")
    kill_when(settings_for(local_path(pools), tiny_bert), runs, lambda: has_checkpoint(runs / ".cache"), nodes.address)
    machines.enter("second driver")
    runs = local_path(f"{bucket.uri}/runs")
    assert not any(name.startswith("scores-") for name in names_in(runs / ".cache"))
    return finish_run(settings_for(local_path(pools), tiny_bert), runs, nodes.address)


def has_checkpoint(cache: Path) -> bool:
    time.sleep(0.2)
    teachers = [cache / name for name in names_in(cache) if name.startswith("teacher-")]
    return any(name.startswith("checkpoint_") for teacher in teachers for name in names_in(teacher / RESUME))


def test_a_run_in_a_bucket_is_that_of_a_disk_whoever_dies(in_bucket: RunFolder, on_disk: RunFolder) -> None:
    assert outcome_digest(in_bucket) == outcome_digest(on_disk)
    assert in_bucket.result["data"] == in_bucket.config["data"] == "s3://bucket/pools"
    assert in_bucket.result["run"] == f"s3://bucket/runs/test/{in_bucket.name}"


def test_nothing_but_the_record_is_left_there(in_bucket: RunFolder, bucket: Bucket) -> None:
    cache = local_path(f"{bucket.uri}/runs/.cache")
    assert {name.partition("-")[0] for name in names_in(cache)} == {"tokens", "teacher", "scores"}
    for name in names_in(cache):
        assert "stage.json" in names_in(cache / name)
        assert not names_in(cache / name) & {RESUME, "progress.json"}
