"""Pools that several machines share through an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.stores import Machines

from icalib.core.errors import DataError, StorageError
from icalib.core.storage import names_in
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.simulate import simulate


@pytest.fixture
def source(tmp_path: Path) -> Path:
    simulate(tmp_path / "dialogues.jsonl", num_dialogues=40, seed=1)
    return tmp_path / "dialogues.jsonl"


def test_mining_tasks_may_run_on_other_machines(machines: Machines, source: Path, tmp_path: Path) -> None:
    def on_another(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
        machines.on("b", "")
        found = [function(block) for block in blocks]
        machines.on("a", "")
        return found

    out = machines.on("a", "pools")
    there = prepare(source, out, PrepareSettings(num_candidates=3), parallel_map=on_another)
    assert there.digest == prepare(source, tmp_path / "here", PrepareSettings(num_candidates=3)).digest
    assert names_in(machines.on("a", "")) == {"pools"}  # no index is left
    assert read_pool_set(machines.on("c", "pools")) == there
    assert names_in(out) == {"pools.json", "train.parquet", "validation.parquet", "test.parquet"}


def test_pools_that_were_not_uploaded_are_uploaded_by_the_same_command(machines: Machines, source: Path) -> None:
    out = machines.on("a", "pools")
    with pytest.MonkeyPatch.context() as patch:
        broken = Machines(machines.folder, patch)
        broken.fails(lambda kind, path: kind == "write" and "pools.json" in path)
        with pytest.raises(StorageError):
            prepare(source, out, PrepareSettings(num_candidates=3))
    with pytest.raises(DataError, match=r"fsspec\+file://.*not a pool folder"):
        read_pool_set(machines.on("b", "pools"))
    prepare(source, machines.on("a", "pools"), PrepareSettings(num_candidates=3))
    assert read_pool_set(machines.on("b", "pools")).num_pools["train"] > 0
