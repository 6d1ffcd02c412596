"""Training the word embeddings of tokens that occur."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.runs import CPU
from helpers.tiny_models import token_store
from helpers.train_jobs import job_of, train_job
from torch import nn

from icalib.core.job import Job
from icalib.data.pools import read_pool_set
from icalib.encoders.transformer import BackboneEncoder
from icalib.models.word_rows import OccurringRows, train_occurring_rows
from icalib.parts.intent_encoder import IntentEncoderJob
from icalib.parts.similarity import Similarity, SimilarityJob
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.domain_pretraining.job import ContrastiveJob
from icalib.training.job import Training, TrainingJob
from icalib.training.local_engine import LocalEngine
from icalib.training.settings import TrainingSettings


def jobs_that_know_their_tokens(pools: Path, backbone: Path, folder: Path) -> list[TrainingJob]:
    cross = train_job(pools, backbone, folder)
    for split in ("train", "validation"):
        token_store(pools, split, backbone, folder)

    num_intents = len(read_pool_set(pools).intents)

    def made(kind: type[Job], **fields: Any) -> Any:
        return job_of(kind, backbone, folder, labelled=0.5, **fields)

    return [
        cross,
        made(SimilarityJob, settings=Similarity()),
        made(ContrastiveJob, task=Contrastive.Config()),
        made(IntentEncoderJob, training=TrainingSettings(), ridge=0.1, num_folds=2, num_intents=num_intents),
    ]


@pytest.mark.parametrize("family", ["tiny_bert", "tiny_roberta"])
def test_all_tokens_of_all_examples_are_trained(
    family: str, tiny_pools: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for job in jobs_that_know_their_tokens(tiny_pools, request.getfixturevalue(family), tmp_path):
        training = job.prepare(CPU)
        (backbone,) = (module.backbone for module in training.model.modules() if isinstance(module, BackboneEncoder))
        rows, read = backbone.get_input_embeddings(), set[int]()
        assert isinstance(rows, OccurringRows)
        rows.register_forward_pre_hook(lambda _, ids, read=read: read.update(ids[0].unique().tolist()))
        for batch in training.curriculum.batches(0):
            training.curriculum.losses(training.model, batch, CPU)
        assert read - set(rows.rows_R.tolist()) <= {backbone.config.pad_token_id}, job
        assert len(read) > 20, job


def trained(training: Training, updates: int) -> dict[str, torch.Tensor]:
    settings = TrainingSettings(learning_rate=1e-2, weight_decay=0.0, precision="fp32", max_grad_norm=0.5)
    engine = LocalEngine(training.model, settings)
    for number, batch in enumerate(list(training.curriculum.batches(0))[:updates]):
        torch.manual_seed(number)
        engine.backward_and_step(training.curriculum.losses(engine.forward, batch, CPU)[1])
    return engine.state_dict()


def test_weights_become_those_of_a_training_of_all_rows(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    job = train_job(tiny_pools, tiny_bert, tmp_path)
    torch.manual_seed(1)
    whole = job.build(CPU)
    assert whole.token_ids is not None
    some = deepcopy(whole)
    train_occurring_rows(some.model, whole.token_ids)
    start = deepcopy(whole.model.state_dict())
    expected, found = trained(whole, 5), trained(some, 5)
    name = next(name for name in start if name.endswith("word_embeddings.weight"))
    (encoder,) = (module for module in whole.model.modules() if isinstance(module, BackboneEncoder))
    absent = np.setdiff1d(np.arange(encoder.vocabulary), whole.token_ids)  # intents follow
    assert len(absent) > 10
    assert torch.equal(found[name][absent], start[name][absent])
    assert list(found) == list(expected)
    for weight in expected:
        torch.testing.assert_close(found[weight], expected[weight], atol=2e-4, rtol=0)
    assert (found[name] - start[name]).abs().max() > 1e-2


def test_whole_weights_go_in_and_come_out() -> None:
    embedding = nn.Embedding(9, 4, padding_idx=0)
    rows = OccurringRows(embedding, np.array([0, 2, 5]))
    assert rows.rows_R.tolist() == [2, 5]  # padding isn't trained
    other = {"weight": torch.randn(9, 4)}
    rows.load_state_dict(other)
    assert torch.equal(rows.state_dict()["weight"], other["weight"])
    ids = torch.tensor([[0, 2, 8], [5, 1, 2]])
    assert torch.equal(rows(ids), other["weight"][ids])
    rows(ids).sum().backward()
    assert rows.weight.grad is not None
    assert rows.weight.grad[:, 0].tolist() == [2.0, 1.0]
