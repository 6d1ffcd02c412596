"""Runs by two executors, compared: which stages, which weights, which scores."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from helpers.runs import CPU, table_digest

from icalib.core.events import Emit, ignore
from icalib.core.job import ShardedJob
from icalib.core.run_folder import RunFolder
from icalib.models.checkpoint import read_weights
from icalib.stages.executor import Executor, LocalExecutor
from icalib.stages.resources import Resources
from icalib.training.job import TrainingJob


class Recording:
    """An executor that keeps the sharded jobs which another carries out for it, and their folders."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.mapped: list[tuple[ShardedJob, Path]] = []

    @property
    def resources(self) -> Resources:
        return self._executor.resources

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        self._executor.train(job, folder, stage, emit)

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        self.mapped.append((job, folder))
        self._executor.map(job, folder, stage, emit)

    def split(self, number: int) -> tuple[Recording, int]:
        return self, 1


def map_again(job: ShardedJob, folder: Path, scratch: Path) -> None:
    """Check that this process computes the same shards, to the bit, from the same models."""
    again = Path(tempfile.mkdtemp(dir=scratch))
    LocalExecutor(CPU, num_threads=1).map(job, again, "again", ignore)
    names, found = (
        sorted(path.relative_to(at) for path in at.rglob("*") if path.suffix in (".arrow", ".parquet"))
        for at in (folder, again)
    )
    assert names
    assert names == found
    for name in names:
        if name.suffix == ".arrow":
            assert (again / name).read_bytes() == (folder / name).read_bytes()
        else:
            assert table_digest(again / name) == table_digest(folder / name)


def check_alike(one: RunFolder, other: RunFolder, without_effect: str = "") -> None:
    """Check that two runs took the same stages to models that are the same to rounding, but for a weight of no effect.

    A student's digest holds what was selected for it, which rounding may change where a probability is on a threshold.
    """
    ours, theirs = (stages_of(run) for run in (one, other))
    assert list(ours) == list(theirs)
    for name, stage in ours.items():
        if stage["digest"] != theirs[name]["digest"]:
            assert name.startswith("round-"), name
            return
        checkpoints = [Path(s["path"]) / "checkpoint" for s in (stage, theirs[name])]
        if checkpoints[0].is_dir():
            check_weights(*checkpoints, without_effect)


def check_weights(one: Path, other: Path, without_effect: str) -> None:
    """Check that two checkpoints hold the same weights to rounding."""
    ours, theirs = read_weights(one), read_weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if name == without_effect:
            continue
        torch.testing.assert_close(
            tensor, theirs[name], rtol=1e-4, atol=1e-4, msg=lambda why, name=name: f"{name}: {why}"
        )


def stages_of(run: RunFolder) -> dict[str, dict[str, Any]]:
    return {stage["name"]: stage for stage in run.stages}
