"""The engine for one process: its checkpoints, damaged ones and on full disks, and its optimiser."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.damage import Damage, empty, largest_file, truncate, write_garbage
from helpers.tiny_models import tiny_ranker
from torch import Tensor

from icalib.core.errors import DamagedFileError, StorageError
from icalib.models.model import Model
from icalib.training.local_engine import LocalEngine
from icalib.training.settings import TrainingSettings


@pytest.fixture
def engine(tiny_bert: Path, tmp_path: Path) -> LocalEngine:
    return LocalEngine(tiny_ranker(tiny_bert), TrainingSettings(), folder=tmp_path)


@pytest.mark.parametrize("damage", [truncate, empty, write_garbage])
def test_a_damaged_checkpoint_is_refused_with_its_name(engine: LocalEngine, tmp_path: Path, damage: Damage) -> None:
    engine.save({"step": 3})
    damage(tmp_path / "checkpoint.pt")
    with pytest.raises(DamagedFileError, match=r"checkpoint.pt can't be read .*Remove it and run the same command"):
        engine.load()


def test_too_little_gpu_memory_is_not_taken_for_a_damaged_checkpoint(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.save({"step": 3})

    def exhausted(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "load", exhausted)
    with pytest.raises(torch.OutOfMemoryError):
        engine.load()


def test_a_full_disk_keeps_the_last_checkpoint(engine: LocalEngine, tmp_path: Path) -> None:
    engine.save({"step": 3})
    with pytest.raises(StorageError, match="File too large"), largest_file(10_000):
        engine.save({"step": 4})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert engine.load() == {"step": 3}


class Line(Model):
    """w·x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight @ inputs


def test_the_staircase_goes_down_a_tenth_every_400_updates() -> None:
    settings = TrainingSettings(schedule="staircase", warmup_fraction=0.0)
    factors = [settings.progress_factor(0.5, 0, updates) for updates in (0, 399, 400, 1200)]
    assert factors == [1.0, 1.0, 0.9, 0.9**3]


@pytest.mark.parametrize(
    ("limit", "gradients", "clipped"),
    [
        ("max_grad_value", ([9.0, 0.5, -7.0], [0.1, 5.0, 0.2]), ([1.0, 0.5, -1.0], [0.1, 1.0, 0.2])),
        ("max_grad_norm", ([0.0, 3.0, -4.0], [0.1, 0.3, 0.4]), ([0.0, 0.6, -0.8], [0.1, 0.3, 0.4])),
    ],
)
def test_gradients_are_clipped_by_element_or_by_norm_when_the_optimiser_steps(
    limit: str, gradients: tuple[list[float], ...], clipped: tuple[list[float], ...]
) -> None:
    unlimited = TrainingSettings(max_grad_norm=None, weight_decay=0.0, precision="fp32")
    limited = unlimited.model_copy(update={limit: 1.0})
    lines = Line(), Line()
    for line, settings, steps in zip(lines, (limited, unlimited), (gradients, clipped), strict=True):
        engine = LocalEngine(line, settings)
        for inputs in steps:
            engine.backward_and_step(engine.forward(torch.tensor(inputs)))
    torch.testing.assert_close(lines[0].weight, lines[1].weight)
