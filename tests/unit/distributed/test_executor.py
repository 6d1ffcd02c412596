"""What a process that computes shards leaves in memory; no Ray is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import pytest
import torch
from typing_extensions import override

from icalib.core.errors import IcalibError
from icalib.core.job import ShardedJob
from icalib.core.storage import location
from icalib.distributed.executor import _compute_shards

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
