"""GPU memory that runs out: what to set, instead of a retry that ends the same way."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from icalib.core.errors import IcalibError


@contextmanager
def explained_shortage(doing: str, cure: str) -> Generator[None, None, None]:
    """Turn torch's complaint into one that says what to do.

    Raises:
        IcalibError: the GPU's memory ran out while `doing`; the `cure` is in the message.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        found = ". ".join(str(error).split(". ")[:2])  # what it tried; the rest is about allocators
        raise IcalibError(f"the GPU's memory ran out while {doing} ({found}). {cure}") from error
