from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ranker_config
from helpers.train_jobs import answer_job
from torch import Tensor

from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.loop import _update
from icalib.training.pairs import JointAnswerCurriculum
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")
BATCH_SIZE = 16


class Worker:
    """One worker of an update, which knows what the others send and keeps its gradients."""

    device = CPU

    def __init__(self, model: torch.nn.Module, rank: int, world_size: int, accumulation: int, sent: list[Any]) -> None:
        self.forward, self.rank, self.world_size = model, rank, world_size
        self._accumulation, self._sent = accumulation, sent

    def gather(self, value: Any) -> list[Any]:
        if len(self._sent) < self.world_size:
            self._sent.append(value)
            raise _Sent
        return self._sent

    def backward_and_step(self, loss: Tensor) -> None:
        (loss / self._accumulation / self.world_size).backward()


class _Sent(Exception):
    """What a worker sends is known."""


def update(tokens: Path, backbone: Path, *, workers: int, accumulation: int) -> tuple[float, dict[str, Tensor]]:
    """Return loss and gradients of one update of all workers on a batch of 16 pairs."""
    head = PolyaGammaHead.Config(length_scale=0.01)
    job = answer_job(
        tokens,
        ranker_config(backbone).model_copy(update={"head": head}),
        training=TrainingSettings(batch_size=BATCH_SIZE, precision="fp32", gradient_accumulation=accumulation),
    )
    training = job.prepare(CPU)
    model: Any = training.model.eval()  # without dropout
    curriculum: Any = training.curriculum
    assert isinstance(curriculum, JointAnswerCurriculum)
    batch = curriculum.batches(0)[0]
    assert len(batch) == BATCH_SIZE
    sent: list[Any] = []
    if workers * accumulation > 1:
        for rank in range(workers):
            with pytest.raises(_Sent):
                run(model, curriculum, job, batch, Worker(model, rank, workers, accumulation, sent))
    for rank in range(workers):
        loss = run(model, curriculum, job, batch, Worker(model, rank, workers, accumulation, sent))
    return loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def run(model: Any, curriculum: Any, job: CrossEncoderJob, batch: Any, worker: Any) -> float:
    return _update(model, worker, curriculum, job.training, batch, 3, 0)[1].item()


def test_a_batch_is_one_gaussian_process_however_it_is_split(tokens: Path, tiny_bert: Path) -> None:
    loss, gradients = update(tokens, tiny_bert, workers=1, accumulation=1)
    assert gradients["answer_head.projection.weight"].norm() > 1e-3
    largest = max(tensor.norm() for tensor in gradients.values())
    for workers, accumulation in ((1, 4), (2, 1), (2, 2), (1, 16), (4, 5)):
        split_loss, split = update(tokens, tiny_bert, workers=workers, accumulation=accumulation)
        assert split_loss == pytest.approx(loss, rel=1e-5)
        assert split.keys() == gradients.keys()
        for name, tensor in gradients.items():  # rounding, in features too
            assert (split[name] - tensor).norm() < 2e-3 * tensor.norm() + 1e-6 * largest, name
