"""A job of two shards: one fails as soon as the other has begun, which would take a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import torch
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.core.job import ShardedJob


class FailingShards(ShardedJob):
    """Shard 0 begins, waits and is never whole; shard 1 fails."""

    verb: ClassVar[str] = "computing"

    @property
    @override
    def uses_models(self) -> bool:
        return False

    @override
    def shards(self) -> list[int]:
        return [0, 1]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"shard-{index}"

    @override
    def compute_shard(self, index: int, shard: int, folder: Path, device: torch.device) -> None:
        begun = folder / "begun"
        if index == 0:
            begun.touch()
        for _ in range(600):
            if index == 1 and begun.exists():
                raise SettingError("a setting that can't be")
            time.sleep(0.1)
        self.shard_path(folder, index).touch()
