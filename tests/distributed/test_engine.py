"""DeepSpeed's stages against plain torch, and what is refused on resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ranker_config, token_store

from icalib.core.errors import SettingError
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.distributed.engine import DeepSpeedEngine
from icalib.distributed.session import Resources
from icalib.distributed.training import train
from icalib.losses.binary import BinaryCrossEntropy
from icalib.regimes.jobs import prepare_training
from icalib.regimes.ranker import read_weights
from icalib.regimes.training import LocalEngine, TrainingSettings
from icalib.regimes.training import train as train_loop
from icalib.regimes.workbench import TrainJob

pytestmark = pytest.mark.ray


def train_job(pools: Path, backbone: Path, folder: Path, **training: Any) -> TrainJob:
    tokens = token_store(pools, "train", backbone, folder).path
    return TrainJob(
        kind="answers",
        ranker=ranker_config(backbone, intents=read_pool_set(pools).intents, dropout=0.0),
        loss=BinaryCrossEntropy.Config(),
        training=TrainingSettings(
            epochs=1, learning_rate=1e-3, head_learning_rate=1e-2, train_negatives=1, precision="fp32", **training
        ),
        selection=Selection(labelled_fraction=0.5, limit={"train": 24}),
        views_with_intents=True,
        train_tokens=tokens,
        validation_tokens=tokens,
        seed=3,
    )


class Keep:
    def progress(self, done: float, total: float, note: str) -> None: ...

    def best(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = {name: tensor.clone() for name, tensor in weights.items()}


@pytest.mark.parametrize(("workers", "stage", "accumulation"), [(1, 0, 2), (2, 0, 1), (2, 2, 1), (2, 3, 1)])
def test_every_zero_stage_trains_as_plain_torch_does(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, workers: int, stage: int, accumulation: int
) -> None:
    job = train_job(tiny_pools, tiny_bert, tmp_path, zero_stage=stage, gradient_accumulation=accumulation)
    folder = tmp_path / "stage"
    folder.mkdir()
    resources = Resources(num_workers=workers, use_gpu=False, cpus_per_worker=1, num_scorers=1)
    train(job, folder, resources, lambda done, total, note: None)
    plain = prepare_training(job, torch.device("cpu"))
    kept = Keep()
    settings = job.training.model_copy(update={"gradient_accumulation": 1})
    engine = LocalEngine(plain.ranker, settings)
    train_loop(plain.ranker, engine, plain.curriculum, settings, kept, seed=job.seed, validation=plain.validation)
    trained = read_weights(folder / "checkpoint")
    start = prepare_training(job, torch.device("cpu")).ranker.state_dict()
    moved = max(float((kept.weights[name] - start[name]).abs().max()) for name in trained)
    assert moved > 1e-3
    for name, tensor in trained.items():
        # Adam turns rounding of tiny gradients into steps of the learning rate's size, so a few weights may differ.
        assert float((tensor - kept.weights[name]).abs().mean()) < 2e-5, name


@pytest.mark.parametrize(
    ("made_by", "now", "fits"),
    [
        ((2, 0), (1, 0), True),
        ((2, 2), (2, 2), True),
        ((2, 2), (1, 2), False),
        ((2, 3), (1, 3), False),
        ((1, 1), (1, 0), False),
    ],
)
def test_resuming_on_other_workers_is_refused_where_deepspeed_would_go_wrong(
    made_by: tuple[int, int], now: tuple[int, int], fits: bool
) -> None:
    engine = object.__new__(DeepSpeedEngine)
    engine.world_size = now[0]
    engine._settings = TrainingSettings(zero_stage=now[1])
    facts = {"world_size": made_by[0], "zero_stage": made_by[1]}
    if fits:
        engine._check_fits(facts)
    else:
        with pytest.raises(SettingError, match=f"checkpointed by {made_by[0]} workers"):
            engine._check_fits(facts)
