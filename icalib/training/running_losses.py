"""The losses of a training between the points of its curve."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from icalib.core.errors import IcalibError


class RunningLosses:
    """Mean losses of updates since the last point of the curve.

    They stay on the device until a point needs them, because reading waits for the device. On a CPU, where it doesn't,
    every loss is read at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._reads_at_once = device.type == "cpu"
        self._unread: list[tuple[str, Tensor, int]] = []
        self._read: dict[str, list[float]] = {}
        self._note: dict[str, str] = {}

    def add(self, task: str, loss: Tensor, step: int) -> None:
        """Add an update's loss []."""
        self._unread.append((task, loss, step))
        if self._reads_at_once:
            self._read_all()

    def note(self, task: str) -> str:
        """Return the loss of a task as it was last read, as text."""
        return self._note.get(task, "")

    def taken(self) -> dict[str, list[float]]:
        """Return the losses of each task since the last call."""
        self._read_all()
        taken, self._read = self._read, {}
        return taken

    def _read_all(self) -> None:
        for task, loss, step in self._unread:
            value = float(loss)
            if not math.isfinite(value):
                raise diverged(f"the loss is {value} in update {step + 1}")
            self._read.setdefault(task, []).append(value)
            self._note[task] = f", loss {np.mean(self._read[task][-20:]):.3f}"
        self._unread = []


def diverged(what: str) -> IcalibError:
    """Return the error of a training whose numbers aren't finite."""
    return IcalibError(
        f"training diverged: {what}, expected a finite number. "
        "Lower `learning_rate` or `head_learning_rate`, or set precision=fp32."
    )
