"""Training of the bi-encoder by several DeepSpeed workers, and a start that they keep."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import BUDGET
from helpers.train_jobs import train_job

from icalib.core.events import ignore
from icalib.core.files import read_json, write_json
from icalib.distributed.training import train
from icalib.models.checkpoint import read_weights
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.pipeline.resources import Resources
from icalib.training.answers import TrainJob
from icalib.training.settings import TrainingSettings

pytestmark = [pytest.mark.ray, pytest.mark.slow]
NIGHTLY = pytest.mark.nightly

Train = Callable[[Any, int], Path]


@pytest.fixture
def trained(local_ray: None, tmp_path: Path) -> Train:
    def compute(job: Any, workers: int) -> Path:
        folder = tmp_path / f"{type(job).__name__}-{workers}"
        folder.mkdir()
        resources = Resources(num_workers=workers, use_gpu=False, cpus_per_worker=1, num_scorers=1)
        train(job, folder, resources, "teacher", ignore)
        return folder

    return compute


def answers(tiny_pools: Path, tiny_bert: Path, folder: Path, **training: Any) -> TrainJob:
    made = train_job(tiny_pools, tiny_bert, folder, **training)
    plain = {"similarity_start": "separate", "intents": ()}
    return made.model_copy(update={"ranker": made.ranker.model_copy(update=plain), "views_with_intents": False})


def bi_encoder(job: TrainJob, tiny_bert: Path, **training: Any) -> SimilarityJob:
    loop = {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32", "batch_size": 4}
    loop["selection_metric"] = "MAP"
    return SimilarityJob(
        backbone=str(tiny_bert),
        budget=BUDGET,
        settings=Similarity(training=TrainingSettings.model_validate(loop | training)),
        selection=job.selection,
        train_tokens=job.train_tokens,
        validation_tokens=job.validation_tokens,
        seed=3,
    )


@pytest.mark.parametrize("stage", [0, pytest.param(3, marks=NIGHTLY)])
def test_workers_compare_the_candidates_of_the_whole_batch(
    trained: Train, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, stage: int
) -> None:
    """Two workers train as one does, but for dropout, which is off, and rounding."""
    backbone = _without_dropout(tiny_bert, tmp_path / "bert")
    job = bi_encoder(answers(tiny_pools, tiny_bert, tmp_path), backbone, zero_stage=stage)
    one, two = (read_weights(trained(job, workers) / "checkpoint") for workers in (1, 2))
    start = read_weights(_untrained(job, tmp_path / "start"))
    assert max(float((one[name] - start[name]).abs().max()) for name in one) > 1e-3
    for name, tensor in one.items():
        assert float((tensor - two[name]).abs().mean()) < 2e-5, name


def _without_dropout(backbone: Path, copy: Path) -> Path:
    shutil.copytree(backbone, copy)
    config = read_json(copy / "config.json")
    write_json(copy / "config.json", {**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    return copy


def _untrained(job: SimilarityJob, folder: Path) -> Path:
    encoder: Any = job.prepare(torch.device("cpu")).model
    folder.mkdir()
    encoder.save(folder, encoder.state_dict())
    return folder
