"""Who hears of a training in tests, and who dies in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from icalib.training.local_engine import LocalEngine


class Silent:
    """Wants no reports."""

    def progress(self, done: float, total: float, note: str) -> None: ...

    def best(self, weights: dict[str, torch.Tensor]) -> None: ...

    def validated(self, points: Sequence[dict[str, Any]]) -> None: ...


class Interrupted(Exception):
    """The process would die here."""


class DyingEngine(LocalEngine):
    """Dies before an update."""

    deadline = 3

    def backward_and_step(self, loss: torch.Tensor) -> None:
        self.deadline -= 1
        if self.deadline < 0:
            raise Interrupted
        super().backward_and_step(loss)
