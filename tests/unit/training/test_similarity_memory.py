from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.train_jobs import train_job

from icalib.training.job import Training

CPU = torch.device("cpu")


def prepared(pools: Path, backbone: Path, folder: Path, zero_stage: int) -> Training:
    job = train_job(pools, backbone, folder, zero_stage=zero_stage)
    return job.model_copy(update={"ranker": job.ranker.model_copy(update={"similarity_start": "both"})}).prepare(CPU)


def losses(training: Training) -> list[float]:
    """Of pairs in the plain view: intents shorten contexts that are cut, which are then other texts."""
    plain = [batch for batch in training.curriculum.batches(0) if batch[0].task == "answer_plain"]
    return [training.curriculum.losses(training.model, batch, CPU)[1].item() for batch in plain]


def test_updates_and_validation_look_similarities_up(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing, remembering = (prepared(tiny_pools, tiny_bert, tmp_path, stage) for stage in (3, 0))
    assert remembering.validation is not None
    remembering.validation(remembering.model, 0, 1)  # after which training pairs are still remembered
    bi_encoder: Any = remembering.model.get_submodule("bi_encoder")
    monkeypatch.setattr(bi_encoder.encoder, "token_states", pytest.fail)
    assert losses(remembering) == pytest.approx(losses(computing), rel=1e-4)
    remembering.validation(remembering.model, 0, 1)


def test_workers_of_zero_stage_3_run_the_same_passes(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    training = prepared(tiny_pools, tiny_bert, tmp_path, 3)
    bi_encoder: Any = training.model.get_submodule("bi_encoder")
    passes: list[int] = []
    bi_encoder.encoder.backbone.register_forward_hook(lambda *_: passes.append(1))
    for batch in training.curriculum.batches(0):
        passes.clear()
        task, _ = training.curriculum.losses(training.model, batch, CPU)
        assert len(passes) == (0 if task == "intent" else 2)
