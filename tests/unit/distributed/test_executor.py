"""What a process that computes shards leaves in memory and in a store; no Ray is started."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import pytest
import torch
from helpers.stores import Machines
from typing_extensions import override

from icalib.core.errors import Abandoned, ComponentError, IcalibError
from icalib.core.files import write_json
from icalib.core.job import ShardedJob
from icalib.core.storage import location
from icalib.distributed import executor
from icalib.distributed.executor import _compute_shards, _wait_for_shards
from icalib.distributed.progress import STOP, WorkerReporter
from icalib.losses.binary import AbstractLoss

made: list[ref[torch.Tensor]] = []


class FailingJob(ShardedJob):
    """Fails with a model in memory."""

    verb: ClassVar[str] = "failing"

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / "shard"

    @override
    def compute_shard(self, index: int, shard: Any, folder: Path, device: torch.device) -> None:
        model = torch.zeros(3)
        made.append(ref(model))
        raise torch.OutOfMemoryError("CUDA out of memory")


class Lossy(FailingJob):
    """Has a component."""

    loss: AbstractLoss.Config


def test_a_shard_that_fails_leaves_nothing_in_memory_for_the_training_that_is_next(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="memory ran out") as raised:
        _compute_shards(FailingJob().to_json(), [(0, None)], location(tmp_path))
    assert raised.value.__cause__ is not None
    assert [one() for one in made] == [None]


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can use the GPU here")
def test_a_gpu_that_torch_can_not_use_is_named_instead_of_scoring_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.get_gpu_ids", lambda: [0])
    with pytest.raises(IcalibError, match=r"Ray counts a GPU on .*which torch .* can't use.*nvidia-smi"):
        _compute_shards(FailingJob().to_json(), [(0, None)], location(tmp_path))


def test_a_component_that_a_node_lacks_is_missing_on_that_node(tmp_path: Path) -> None:
    lacking = json.dumps({"class": [Lossy.__module__, Lossy.__qualname__], "loss": {"target": "no_such_lab.Soft"}})
    with pytest.raises(ComponentError, match=rf"on the node {platform.node()}.*no_such_lab.*icalib submit"):
        _compute_shards(lacking, [(0, None)], location(tmp_path))


class TwoShards(ShardedJob):
    """Writes a file for each of two shards."""

    verb: ClassVar[str] = "writing"

    @property
    @override
    def uses_models(self) -> bool:
        return False

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"shard-{index}"

    @override
    def compute_shard(self, index: int, shard: Any, folder: Path, device: torch.device) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.shard_path(folder, index).write_text(shard)


def test_a_shard_that_only_a_mirror_has_is_computed_and_shared_again(machines: Machines) -> None:
    """Of a stage that was removed from the store, or whose upload failed; then it would be missing for good."""
    folder = machines.on("worker", "stage")
    folder.mkdir(parents=True)
    (folder / "shard-0").write_text("of an attempt before")
    _compute_shards(TwoShards().to_json(), [(0, "new"), (1, "new")], location(folder))
    assert [machines.there(f"stage/shard-{index}").read_text() for index in (0, 1)] == ["new", "new"]


def test_shards_on_a_disk_of_another_node_are_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_SEEN_WITHIN_S", 0.0)
    (tmp_path / "shard-0").touch()
    with pytest.raises(IcalibError, match=r"1 of 2 files .*shard-1.*icalib doctor"):
        _wait_for_shards(TwoShards(), tmp_path, 2)


def test_a_training_does_not_stop_for_what_stopped_another_one_there(machines: Machines) -> None:
    folder = machines.on("worker", "stage")
    write_json(folder / STOP, {"reason": "an earlier trial's pruner"})  # which the store has forgotten
    reporter = WorkerReporter(None, folder)  # type: ignore[arg-type]
    reporter.progress(1, 2, "")
    machines.on("driver", "stage")
    write_json(machines.there("stage") / STOP, {"reason": "this one's pruner"})
    machines.on("worker", "stage")
    with pytest.raises(Abandoned, match="this one's pruner"):
        WorkerReporter(None, folder).progress(1, 2, "")  # type: ignore[arg-type]
