"""From which checkpoints DeepSpeed resumes; no Ray is started."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from icalib.core.errors import SettingError
from icalib.distributed.checkpoints import STATE
from icalib.distributed.engine import DeepSpeedEngine
from icalib.training.settings import TrainingSettings


class Loads:
    """DeepSpeed's engine and the checkpoints, as far as loading goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def last(self) -> Generator[Path]:
        yield self._folder

    def load_checkpoint(self, folder: str) -> tuple[str, dict[str, Any]]:
        return folder, {}


@pytest.mark.parametrize(
    ("saved_by", "saved_stage", "now", "stage", "loads"),
    [(2, 0, 1, 0, True), (2, 2, 2, 2, True), (2, 2, 1, 2, False), (1, 1, 1, 0, False)],
)
def test_shards_are_loaded_by_as_many_workers_of_the_same_stage(
    tmp_path: Path, saved_by: int, saved_stage: int, now: int, stage: int, loads: bool
) -> None:
    facts = {"world_size": saved_by, "zero_stage": saved_stage, "state": {"step": 3}}
    (tmp_path / STATE).write_text(json.dumps(facts))
    engine: Any = object.__new__(DeepSpeedEngine)
    engine.world_size, engine._engine, engine._checkpoints = now, Loads(tmp_path), Loads(tmp_path)
    engine._settings = TrainingSettings.model_validate({"zero_stage": stage})
    if loads:
        assert engine.load() == {"step": 3}
    else:
        with pytest.raises(SettingError, match=f"by {saved_by} workers with ZeRO stage {saved_stage}.*--fresh"):
            engine.load()
