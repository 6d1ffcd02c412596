"""Losses that make a training slow, traceable or impossible."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor

from icalib.core.errors import SettingError
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy


@final
class TracedLoss(AbstractLoss):
    """Binary cross-entropy that takes its time and writes down on which node, and by which rank, it was computed."""

    class Config(AbstractLoss.Config):
        trace: Path
        seconds: float

    def __init__(self, config: Config) -> None:
        self.config = config
        self._loss = BinaryCrossEntropy(BinaryCrossEntropy.Config())

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        import ray

        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        _append(self.config.trace, f"{ray.get_runtime_context().get_node_id()} {rank}")
        time.sleep(self.config.seconds)
        return self._loss(logits_B, labels_B)


@final
class HopelessLoss(AbstractLoss):
    """Fails at every try, and keeps count of the tries."""

    class Config(AbstractLoss.Config):
        trace: Path
        error: Literal["setting", "memory", "machine-memory", "bug"]

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        _append(self.config.trace, self.config.error)
        if self.config.error == "setting":
            raise SettingError("a setting that can't be")
        if self.config.error == "machine-memory":
            torch.empty(2**60)
        if self.config.error == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 MiB free.")
        raise ZeroDivisionError("a bug")


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
