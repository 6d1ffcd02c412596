"""Workers gather values without running code that one of them sends."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers.gathering import RunsCode
from torch import multiprocessing

from icalib.training.gather import gather

CPU = torch.device("cpu")


def value_of(rank: int) -> dict[str, Any]:
    return {"row": {rank: torch.full((rank + 1, 2), 0.1, dtype=torch.float64)}, "sums": [(0.1, rank)], "a": b"\x00\xff"}


def work(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = gather(value_of(rank), CPU)
    assert [repr(value) for value in found] == [repr(value_of(rank)) for rank in range(2)]
    if rank == 1:
        torch.save = lambda value, file: file.write(pickle.dumps(RunsCode(folder / "ran")))  # pyright: ignore
    with pytest.raises(pickle.UnpicklingError):
        gather(1, CPU)
    dist.destroy_process_group()


def test_two_workers_gather_their_values_and_run_no_code_of_each_other(tmp_path: Path) -> None:
    multiprocessing.spawn(work, (tmp_path,), nprocs=2)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(RunsCode(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()
