"""How shards are dealt out."""

from __future__ import annotations

from pathlib import Path

import pytest

from icalib.distributed.session import Resources
from icalib.distributed.shards import _one_by_one, _shards_of_a_task


@pytest.mark.parametrize(
    ("missing", "gpus", "size"), [(0, 1, 1), (14, 2, 1), (100, 1, 25), (1000, 2, 64), (10**6, 64, 64)]
)
def test_tasks_on_gpus_take_more_shards_where_there_are_many(missing: int, gpus: int, size: int) -> None:
    resources = Resources(num_workers=gpus, use_gpu=True, cpus_per_worker=1, num_scorers=gpus)
    assert _shards_of_a_task(missing, resources) == size


def test_a_task_that_starts_again_does_what_is_missing(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    paths[0].touch()
    done: list[str] = []
    _one_by_one(done.append, [((path.name,), path) for path in paths])
    assert done == ["b", "c"]
