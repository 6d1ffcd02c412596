"""The number of threads that torch computes with."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def num_threads(number: int) -> Generator[None, None, None]:
    """Compute with a number of threads, and then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
