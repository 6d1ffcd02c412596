"""Error messages for exhausted memory, which name the settings to change."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from icalib.core.errors import IcalibError

_CPU_ALLOCATOR = "DefaultCPUAllocator: "


@contextmanager
def reraise_oom(doing: str, advice: str) -> Generator[None, None, None]:
    """Replace torch's out-of-memory errors while `doing` something by an `IcalibError` with advice."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        found = ". ".join(str(error).split(". ")[:2])  # the attempted allocation, without advice on allocators
        raise _shortage("GPU", doing, found, advice) from error
    except RuntimeError as error:  # torch has no more specific type for the CPU
        _, is_shortage, found = str(error).partition(_CPU_ALLOCATOR)
        if not is_shortage:
            raise
        raise _shortage("machine", doing, found.split(". ")[0], advice) from error
    except MemoryError as error:
        raise _shortage("machine", doing, str(error) or "no details available", advice) from error


def _shortage(owner: str, doing: str, found: str, advice: str) -> IcalibError:
    return IcalibError(f"the {owner}'s memory ran out while {doing} ({found}). {advice}")
