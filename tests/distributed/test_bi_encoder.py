"""Training of the similarity part by several DeepSpeed workers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import CPU
from helpers.tiny_models import token_store
from helpers.train_jobs import job_of

from icalib.core.events import ignore
from icalib.core.files import read_json, write_json
from icalib.data.selection import Selection
from icalib.distributed.executor import RayExecutor
from icalib.models.checkpoint import read_weights
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.stages.executor import Executor, LocalExecutor
from icalib.stages.resources import Resources
from icalib.training.settings import TrainingSettings

pytestmark = [pytest.mark.ray, pytest.mark.slow]
NIGHTLY = pytest.mark.nightly


def deepspeed(workers: int) -> RayExecutor:
    return RayExecutor(Resources(num_workers=workers, use_gpu=False, cpus_per_worker=1, num_scorers=1))


@pytest.mark.parametrize("stage", [0, pytest.param(3, marks=NIGHTLY)])
def test_workers_compare_the_candidates_of_the_whole_batch(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, stage: int
) -> None:
    """Plain torch, one worker and two train alike, but for dropout, which is off, and rounding."""
    job = similarity_job(tiny_pools, _without_dropout(tiny_bert, tmp_path / "bert"), tmp_path, zero_stage=stage)
    plain, one, two = (
        _trained(executor, job, tmp_path / name)
        for name, executor in (("plain", LocalExecutor(CPU)), ("one", deepspeed(1)), ("two", deepspeed(2)))
    )
    start = read_weights(_untrained(job, tmp_path / "start"))
    assert max(float((plain[name] - start[name]).abs().max()) for name in plain) > 1e-3
    for name, tensor in plain.items():
        for other in (one, two):
            assert float((tensor - other[name]).abs().mean()) < 2e-5, name


def similarity_job(pools: Path, backbone: Path, folder: Path, **training: Any) -> SimilarityJob:
    loop = {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32", "batch_size": 4, "selection_metric": "MAP"}
    settings = Similarity(training=TrainingSettings.model_validate(loop | training))
    for split in ("train", "validation"):
        token_store(pools, split, backbone, folder)
    few = Selection(labelled_fraction=0.5, limit={"train": 24})
    return job_of(SimilarityJob, backbone, folder, settings=settings, selection=few, seed=3)


def _trained(executor: Executor, job: SimilarityJob, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    executor.train(job, folder, "similarity", ignore)
    return read_weights(folder / "checkpoint")


def _without_dropout(backbone: Path, copy: Path) -> Path:
    shutil.copytree(backbone, copy)
    config = read_json(copy / "config.json")
    write_json(copy / "config.json", {**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    return copy


def _untrained(job: SimilarityJob, folder: Path) -> Path:
    encoder: Any = job.prepare(CPU).model
    folder.mkdir()
    encoder.save(folder, encoder.state_dict())
    return folder
