"""Memory that runs out: what to set, instead of a retry that ends the same way."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from icalib.core.errors import IcalibError

_CPU_ALLOCATOR = "DefaultCPUAllocator: "


@contextmanager
def explained_shortage(doing: str, cure: str) -> Generator[None, None, None]:
    """Turn torch's complaint into one that says what to do.

    Raises:
        IcalibError: the memory of GPU or machine ran out while `doing`; the `cure` is in the message.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        found = ". ".join(str(error).split(". ")[:2])  # what it tried; the rest is about allocators
        raise _shortage("GPU", doing, found, cure) from error
    except RuntimeError as error:  # the only type that torch has for it
        _, is_shortage, found = str(error).partition(_CPU_ALLOCATOR)
        if not is_shortage:
            raise
        raise _shortage("machine", doing, found.split(". ")[0], cure) from error
    except MemoryError as error:
        raise _shortage("machine", doing, str(error) or "no more is known", cure) from error


def _shortage(whose: str, doing: str, found: str, cure: str) -> IcalibError:
    return IcalibError(f"the {whose}'s memory ran out while {doing} ({found}). {cure}")
