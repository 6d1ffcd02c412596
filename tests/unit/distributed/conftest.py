from __future__ import annotations

from collections.abc import Generator

import pytest
import torch.distributed as dist
from torch.nn import functional

from icalib.distributed.engine import load_deepspeed


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a lone worker, which leaves torch as it was."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(functional, "linear", functional.linear)  # which ZeRO 3 replaces


@pytest.fixture
def alone(environment: None) -> Generator[None]:
    """The process group of a lone worker."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    load_deepspeed().comm.destroy_process_group()
