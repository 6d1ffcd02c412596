"""Assignment of shards to Ray tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icalib.core.job import ShardedJob
from icalib.distributed.executor import _compute_shards, _shards_per_task
from icalib.stages.resources import Resources


class Letters(ShardedJob):
    """Writes one letter per shard."""

    verb = "writing"

    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / str(index)

    def compute_shard(self, index: int, shard: Any, folder: Path, device: Any) -> None:
        self.shard_path(folder, index).write_text(shard)


@pytest.mark.parametrize(
    ("missing", "gpus", "size"), [(0, 1, 1), (14, 2, 1), (100, 1, 25), (1000, 2, 64), (10**6, 64, 64)]
)
def test_a_gpu_task_takes_more_shards_if_there_are_many(missing: int, gpus: int, size: int) -> None:
    resources = Resources(num_workers=gpus, use_gpu=True, cpus_per_worker=1, num_scorers=gpus)
    assert _shards_per_task(missing, resources) == size


def test_a_restarted_task_computes_the_missing_shards(tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    _compute_shards(Letters().to_json(), [(0, "a"), (1, "b"), (2, "c")], str(tmp_path))
    assert [(tmp_path / name).read_text() for name in "012"] == ["", "b", "c"]
