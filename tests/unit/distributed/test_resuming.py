"""From which checkpoints DeepSpeed resumes, and how those of other numbers of workers are read; no Ray is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from icalib.core.errors import SettingError
from icalib.distributed import engine as engines
from icalib.distributed.engine import DeepSpeedEngine
from icalib.distributed.resharding import _by_offset, _by_parameter
from icalib.training.settings import TrainingSettings


class Calls:
    """DeepSpeed's engine, as far as loading goes."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def load_checkpoint(self, folder: str) -> tuple[str, dict[str, Any]]:
        self.loaded.append("whole")
        return folder, {}


@pytest.mark.parametrize(
    ("saved_by", "now", "stage", "how"),
    [(2, 1, 0, "whole"), (2, 2, 2, "whole"), (2, 1, 2, "resharded"), (1, 2, 3, "resharded")],
)
def test_checkpoints_of_other_workers_are_resharded(
    monkeypatch: pytest.MonkeyPatch, saved_by: int, now: int, stage: int, how: str
) -> None:
    engine, calls = object.__new__(DeepSpeedEngine), Calls()
    engine.world_size, engine._engine = now, calls
    engine._settings = TrainingSettings.model_validate({"zero_stage": stage})
    monkeypatch.setattr(engines, "read_whole", lambda folder, tag: "state")
    monkeypatch.setattr(engines, "restore", lambda engine, state: engine.loaded.append("resharded"))
    engine._load_engine(Path("checkpoint"), saved_by)
    assert calls.loaded == [how]


def test_another_zero_stage_is_refused() -> None:
    engine = object.__new__(DeepSpeedEngine)
    engine._settings = TrainingSettings(zero_stage=0)
    with pytest.raises(SettingError, match="with ZeRO stage 1; this run has stage 0"):
        engine._check_stage(1)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_slices_of_workers_make_whole_tensors(world_size: int) -> None:
    """As DeepSpeed slices: whole groups in stages 1 and 2, each parameter in stage 3; both with padding at the end."""
    wholes = {"a": torch.arange(35.0).view(5, 7), "b": torch.arange(4.0), "c": torch.arange(11.0)}
    shapes = [{"a": wholes["a"].shape, "b": wholes["b"].shape}, {"c": wholes["c"].shape}]

    def slices(flat: torch.Tensor) -> list[torch.Tensor]:
        length = -(-len(flat) // world_size)
        return list(torch.cat([flat, torch.zeros(length * world_size - len(flat))]).split(length))

    groups = [torch.cat([wholes[name].flatten() for name in named]) for named in shapes]
    by_group = list(zip(*map(slices, groups), strict=True))
    by_parameter = [[torch.cat(parts)] for parts in zip(*(slices(wholes[n].flatten()) for n in wholes), strict=True)]
    for found in (_by_offset(shapes, by_group, None), _by_parameter(shapes, by_parameter)):
        assert found.keys() == wholes.keys()
        assert all(torch.equal(found[name], wholes[name]) for name in wholes)
