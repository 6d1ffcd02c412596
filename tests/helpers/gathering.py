"""What workers can send to each other, and what they must not run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from icalib.training.gather import from_bytes, gather, to_bytes

CPU = torch.device("cpu")


def sent(value: Any) -> Any:
    """Return a value as `icalib.training.gather` gives it to other workers."""
    return from_bytes(to_bytes(value))


class RunsCode:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self._file,)


def value_of(rank: int) -> dict[str, Any]:
    return {"row": {rank: torch.full((rank + 1, 2), 0.1, dtype=torch.float64)}, "sums": [(0.1, rank)], "a": b"\x00\xff"}


def work(rank: int, folder: Path) -> None:
    """Gather as one of two workers, in processes of their own, which can import no test; then be sent code."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = gather(value_of(rank), CPU)
    assert [repr(value) for value in found] == [repr(value_of(rank)) for rank in range(2)]
    if rank == 1:
        torch.save = lambda value, file: file.write(pickle.dumps(RunsCode(folder / "ran")))  # pyright: ignore
    with pytest.raises(pickle.UnpicklingError):
        gather(1, CPU)
    dist.destroy_process_group()
