"""What workers can send to each other, and what they must not run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch


def sent(value: Any) -> Any:
    """Return a value as `icalib.training.gather` gives it to other workers."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)


class RunsCode:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self._file,)
