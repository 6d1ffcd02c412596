"""Checkpoints of the engine for one process: damaged ones, and disks that are full."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.damage import Damage, empty, largest_file, truncate, write_garbage
from helpers.tiny_models import tiny_ranker

from icalib.core.errors import DamagedFileError, StorageError
from icalib.training.local_engine import LocalEngine
from icalib.training.settings import TrainingSettings


@pytest.fixture
def engine(tiny_bert: Path, tmp_path: Path) -> LocalEngine:
    return LocalEngine(tiny_ranker(tiny_bert), TrainingSettings(), folder=tmp_path)


def test_a_checkpoint_is_loaded_as_it_was_saved(engine: LocalEngine) -> None:
    assert engine.load() is None
    engine.save({"step": 3})
    assert engine.load() == {"step": 3}


@pytest.mark.parametrize("damage", [truncate, empty, write_garbage])
def test_a_damaged_checkpoint_is_refused_with_its_name(engine: LocalEngine, tmp_path: Path, damage: Damage) -> None:
    engine.save({"step": 3})
    damage(tmp_path / "checkpoint.pt")
    with pytest.raises(DamagedFileError, match=r"checkpoint.pt can't be read .*Remove it and run the same command"):
        engine.load()


def test_a_full_disk_keeps_the_last_checkpoint(engine: LocalEngine, tmp_path: Path) -> None:
    engine.save({"step": 3})
    with pytest.raises(StorageError, match="File too large"), largest_file(10_000):
        engine.save({"step": 4})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert engine.load() == {"step": 3}
