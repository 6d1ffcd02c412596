"""What a GPU alone can show: the same numbers as on a CPU, and no update or scoring pass that waits for it."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.scoring import score_pools
from helpers.tiny_models import tiny_ranker
from helpers.train_jobs import train_job
from torch import Tensor

from icalib.data.encoding import TokenStore
from icalib.models.ranker import PoolInputs, Ranker, make_batch
from icalib.scoring.cross import BatchModel, LoadedCross
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import _update
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

CPU, GPU = torch.device("cpu"), torch.device("cuda")
FOUR = MCDropout.Config(num_passes=4)


@contextmanager
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """CUDA raises where this process would wait for it, save where results are read by `Tensor.cpu`."""
    read = Tensor.cpu

    def cpu(tensor: Tensor) -> Tensor:
        on_waiting("default")
        try:
            return read(tensor)
        finally:
            on_waiting("error")

    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "cpu", cpu)
        try:
            on_waiting("error")
            yield
        finally:
            on_waiting("default")


def on_waiting(mode: str) -> None:
    """Set what CUDA does where this process waits for it; torch warns once that this is a prototype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)


def scores(
    ranker: Ranker, store: TokenStore, estimator: AbstractEstimator.Config, device: torch.device
) -> dict[str, list[float]]:
    context = LoadedCross(ranker.to(device), estimator.build(), device, "fp32", 2048)
    table, _ = score_pools(context, store, range(8), with_intents=bool(ranker.config.intents), seed=3)
    return {name: table[name].to_pylist() for name in ("prob_mean", "logit_mean", "logit_var", "mutual_information")}


def test_scores_are_those_of_a_cpu(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert)
    here, there = (scores(ranker, store, Deterministic.Config(), device) for device in (CPU, GPU))
    np.testing.assert_allclose(there["logit_mean"], here["logit_mean"], rtol=1e-3, atol=1e-4)


def test_a_pass_is_repeated_to_the_bit(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert)
    assert scores(ranker, store, FOUR, GPU) == scores(ranker, store, FOUR, GPU)


def test_passes_read_at_once_have_masks_of_their_own(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert).to(GPU)
    inputs = PoolInputs.of(list(store.pools(range(2))), ranker.layout, None).inputs
    batch = make_batch(inputs, ranker.layout, GPU)
    with torch.inference_mode():
        for max_tokens in (0, 10 * batch.ids_BL.numel()):
            logits_SB = BatchModel(ranker, batch, seed=1, max_tokens=max_tokens).dropout_logits(4)
            assert logits_SB.shape == (4, len(inputs))
            assert len(logits_SB.unique(dim=0)) == 4


def test_attention_makes_no_plans(tiny_bert: Path) -> None:
    tiny_ranker(tiny_bert)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_scoring_waits_only_to_read_its_results(
    tiny_bert: Path, store: TokenStore, intents: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = tiny_ranker(tiny_bert, intents=intents).to(GPU)
    scores(ranker, store, FOUR, GPU)  # the first use of a kernel may wait
    with no_waiting(monkeypatch):
        scores(ranker, store, FOUR, GPU)


def test_an_update_waits_for_nothing(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = train_job(tiny_pools, tiny_bert, tmp_path, dropout=0.1)
    training = job.prepare(GPU)
    engine = LocalEngine(training.model, job.training, GPU)
    training.model.train()
    batches = training.curriculum.batches(0)
    for step, batch in enumerate(batches):
        _update(training.model, engine, training.curriculum, job.training, batch, 0, step)
    with no_waiting(monkeypatch):
        losses = [
            _update(training.model, engine, training.curriculum, job.training, batch, 0, step)[1]
            for step, batch in enumerate(batches)
        ]
    assert all(torch.isfinite(loss) for loss in losses)
