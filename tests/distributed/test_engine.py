"""DeepSpeed's stages against plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.train_jobs import train_job

from icalib.core.events import ignore
from icalib.distributed.training import train
from icalib.models.checkpoint import read_weights
from icalib.stages.resources import Resources
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train as train_loop

pytestmark = pytest.mark.ray
NIGHTLY = pytest.mark.nightly


class Keep:
    def progress(self, done: float, total: float, note: str) -> None: ...

    def best(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = {name: tensor.clone() for name, tensor in weights.items()}

    def validated(self, points: Sequence[dict[str, Any]]) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "stage", "accumulation"),
    [(1, 0, 2), pytest.param(2, 0, 1, marks=NIGHTLY), (2, 2, 1), pytest.param(2, 3, 1, marks=NIGHTLY)],
)
def test_every_zero_stage_trains_as_plain_torch_does(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, workers: int, stage: int, accumulation: int
) -> None:
    job = train_job(tiny_pools, tiny_bert, tmp_path, zero_stage=stage, gradient_accumulation=accumulation)
    folder = tmp_path / "stage"
    folder.mkdir()
    resources = Resources(num_workers=workers, use_gpu=False, cpus_per_worker=1, num_scorers=1)
    train(job, folder, resources, "teacher", ignore)
    plain = job.prepare(torch.device("cpu"))
    kept = Keep()
    settings = job.training.model_copy(update={"gradient_accumulation": 1})
    engine = LocalEngine(plain.model, settings)
    train_loop(plain.model, engine, plain.curriculum, settings, kept, seed=job.seed, validation=plain.validation)
    trained = read_weights(folder / "checkpoint")
    start = job.prepare(torch.device("cpu")).model.state_dict()
    moved = max(float((kept.weights[name] - start[name]).abs().max()) for name in trained)
    assert moved > 1e-3
    for name, tensor in trained.items():
        # Adam turns rounding of tiny gradients into steps of the learning rate's size, so a few weights may differ.
        assert float((tensor - kept.weights[name]).abs().mean()) < 2e-5, name
