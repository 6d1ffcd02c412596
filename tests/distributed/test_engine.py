"""Trainings by DeepSpeed against plain torch: the same weights, but for rounding."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import CPU
from helpers.tiny_models import token_store
from helpers.train_jobs import job_of, train_job

from icalib.core.errors import DamagedFileError
from icalib.core.events import ignore
from icalib.core.files import read_json, write_json
from icalib.data.selection import Selection
from icalib.distributed.engine import _load_weights_only
from icalib.distributed.executor import RayExecutor
from icalib.models.checkpoint import read_weights
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.stages.executor import Executor, LocalExecutor
from icalib.stages.resources import Resources
from icalib.training.job import TrainingJob
from icalib.training.settings import TrainingSettings

pytestmark = [pytest.mark.ray, pytest.mark.slow]
NIGHTLY = pytest.mark.nightly
Weights = Mapping[str, torch.Tensor]


def deepspeed(workers: int) -> RayExecutor:
    return RayExecutor(Resources(num_workers=workers, use_gpu=False, cpus_per_worker=1, num_scorers=1))


def trained(executor: Executor, job: TrainingJob, folder: Path) -> Weights:
    folder.mkdir()
    executor.train(job, folder, "teacher", ignore)
    return read_weights(folder / "checkpoint")


def check_alike(start: Weights, plain: Weights, *others: Weights) -> None:
    """Check that a training by plain torch moved weights, and others moved them alike."""
    assert max(float((plain[name] - start[name]).abs().max()) for name in plain) > 1e-3
    for name, tensor in plain.items():
        for other in others:
            # Adam turns rounding of tiny gradients into steps of the learning rate's size, so a few weights may differ.
            assert float((tensor - other[name]).abs().mean()) < 2e-5, name


@pytest.mark.parametrize(
    ("workers", "stage", "accumulation"),
    [(2, 2, 1), *(pytest.param(*case, marks=NIGHTLY) for case in ((1, 0, 2), (2, 0, 1), (2, 3, 1)))],
)
def test_every_zero_stage_trains_as_plain_torch_does(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, workers: int, stage: int, accumulation: int
) -> None:
    whole = train_job(tiny_pools, tiny_bert, tmp_path, zero_stage=stage)
    parts = train_job(tiny_pools, tiny_bert, tmp_path, zero_stage=stage, gradient_accumulation=accumulation)
    plain = trained(LocalExecutor(CPU), whole, tmp_path / "plain")
    check_alike(whole.prepare(CPU).model.state_dict(), plain, trained(deepspeed(workers), parts, tmp_path / "stage"))


@NIGHTLY
@pytest.mark.parametrize("stage", [0, 3])
def test_workers_compare_the_candidates_of_the_whole_batch(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path, stage: int
) -> None:
    """Of the similarity part, without dropout."""
    job = similarity_job(tiny_pools, without_dropout(tiny_bert, tmp_path / "bert"), tmp_path, zero_stage=stage)
    plain, one, two = (
        trained(executor, job, tmp_path / name)
        for name, executor in (("plain", LocalExecutor(CPU)), ("one", deepspeed(1)), ("two", deepspeed(2)))
    )
    encoder: Any = job.prepare(CPU).model
    (tmp_path / "start").mkdir()
    encoder.save(tmp_path / "start", encoder.state_dict())
    check_alike(read_weights(tmp_path / "start"), plain, one, two)


def similarity_job(pools: Path, backbone: Path, folder: Path, **training: Any) -> SimilarityJob:
    loop = {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32", "batch_size": 4, "selection_metric": "MAP"}
    settings = Similarity(training=TrainingSettings.model_validate(loop | training))
    for split in ("train", "validation"):
        token_store(pools, split, backbone, folder)
    few = Selection(labelled_fraction=0.5, limit={"train": 24})
    return job_of(SimilarityJob, backbone, folder, settings=settings, selection=few, seed=3)


def without_dropout(backbone: Path, copy: Path) -> Path:
    shutil.copytree(backbone, copy)
    config = read_json(copy / "config.json")
    write_json(copy / "config.json", {**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    return copy


@pytest.mark.parametrize("kept", [3000, 0])
def test_a_checkpoint_that_is_cut_off_is_named_with_the_cure(tmp_path: Path, kept: int) -> None:
    """Ray would try it again and again, as a worker that died."""
    file = tmp_path / "mp_rank_00_model_states.pt"
    torch.save({"weights": torch.zeros(1000)}, file)
    os.truncate(file, kept)
    with pytest.raises(DamagedFileError, match=r"model_states.pt can't be read .*--fresh"):
        _load_weights_only(str(file))
