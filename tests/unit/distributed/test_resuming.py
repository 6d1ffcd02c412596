"""From which checkpoints DeepSpeed resumes; no Ray is started."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from helpers.gathering import RunsCode
from torch import nn

from icalib.core.errors import DamagedFileError, SettingError
from icalib.distributed.checkpoints import STATE, OwnCheckpoints
from icalib.distributed.engine import DeepSpeedEngine
from icalib.models.model import Model
from icalib.training.settings import TrainingSettings


class Line(nn.Linear):
    weights_read_elsewhere = ()


@pytest.mark.filterwarnings("ignore::FutureWarning:torch", "ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_checkpoint_is_loaded_without_running_code_in_it(alone: None, tmp_path: Path, stage: int) -> None:
    settings = TrainingSettings.model_validate({"zero_stage": stage, "precision": "fp32"})
    made = Line(2, 1)
    engine = DeepSpeedEngine(cast(Model, made), settings, torch.device("cpu"), OwnCheckpoints(tmp_path))
    engine.backward_and_step(engine.forward(torch.ones(1, 2)).sum())
    expected = {name: tensor.clone() for name, tensor in engine.state_dict().items()}
    engine.save({"step": 1})
    engine.backward_and_step(engine.forward(torch.ones(1, 2)).sum())
    assert engine.load() == {"step": 1}
    if stage < 3:  # DeepSpeed can't load these into a model that was trained since
        torch.testing.assert_close(dict(engine.state_dict()), expected)
    for file in tmp_path.rglob("*_states.pt"):
        whole = file.read_bytes()
        torch.save({"optimizer_state_dict": RunsCode(tmp_path / "ran")}, file)
        with pytest.raises(DamagedFileError, match=rf"{file.name}.*--fresh"):
            engine.load()
        file.write_bytes(whole)
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore::FutureWarning:torch", "ignore::DeprecationWarning:torch")
def test_forward_passes_are_in_bf16_on_a_gpu_too(alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed ends an autocast that was begun outside of it, and asks for a GPU's alone."""
    is_enabled = torch.is_autocast_enabled
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: is_enabled("cpu"))
    settings = TrainingSettings.model_validate({"precision": "bf16"})
    engine = DeepSpeedEngine(cast(Model, Line(2, 1)), settings, torch.device("cpu"), OwnCheckpoints(tmp_path))
    assert engine.forward(torch.ones(1, 2)).dtype == torch.bfloat16


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
