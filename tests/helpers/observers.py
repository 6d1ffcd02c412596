"""Who hears of a training in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Silent:
    """Wants no reports."""

    def progress(self, done: float, total: float, note: str) -> None: ...

    def best(self, weights: dict[str, torch.Tensor]) -> None: ...

    def validated(self, points: Sequence[dict[str, Any]]) -> None: ...
