from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import ranker_config
from sklearn.linear_model import LogisticRegression

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker, SimilarityStart, make_batch
from icalib.training.examples import gold_labels
from icalib.training.settings import TrainingSettings
from icalib.training.similarity_fit import fit_start

CPU = torch.device("cpu")
FP32 = TrainingSettings(precision="fp32", max_tokens_per_batch=512)


def ranker(backbone: Path, kind: str) -> Ranker:
    torch.manual_seed(0)
    return Ranker(ranker_config(backbone).model_copy(update={"similarity_start": kind})).train()


def test_slope_and_offset_are_those_of_logistic_regression(tiny_bert: Path, store: TokenStore) -> None:
    made = ranker(tiny_bert, "separate")
    pools = list(store.pools(range(30)))
    fit_start(
        made,
        [gold_labels(pool, with_intents=False) for pool in pools],
        store,
        FP32,
        CPU,
        0,
        has_head=False,
        fits_slope=True,
    )
    assert made.training
    start = made.similarity_start
    assert start is not None
    made.eval()
    similarity, label = [], []
    with torch.inference_mode():
        for pool in pools:
            batch = make_batch(made.layout.inputs(pool.context, None, pool.candidates), made.layout, CPU)
            similarity += made.similarities(batch).tolist()
            label += [number == pool.label for number in range(len(pool.candidates))]
    expected = LogisticRegression(C=1e6, tol=1e-8).fit(np.array(similarity)[:, None], label)
    slope = float(expected.coef_[0, 0])
    if slope > 0.1:  # a slope is never negative; targets are smoothed
        assert start.slope.item() == pytest.approx(slope, rel=0.2)
        assert start.offset.item() == pytest.approx(float(expected.intercept_[0]), rel=0.2, abs=0.05)
    else:
        assert 0 <= start.slope.item() < 0.2


def test_wrong_candidates_are_as_frequent_as_in_training(tiny_bert: Path, store: TokenStore) -> None:
    pools = [gold_labels(pool, with_intents=False) for pool in store.pools(range(30))]
    priors = []
    for negatives in (1, None):
        made = ranker(tiny_bert, "separate")
        settings = FP32.model_copy(update={"train_negatives": negatives})
        fit_start(made, pools, store, settings, CPU, 0, has_head=False, fits_slope=True)
        start = made.similarity_start
        assert start is not None
        batch = make_batch(
            [x for p in store.pools(range(30)) for x in made.layout.inputs(p.context, None, p.candidates)],
            made.layout,
            CPU,
        )
        with torch.inference_mode():
            priors.append(torch.sigmoid(start(made.similarities(batch))).mean().item())
    assert priors[0] == pytest.approx(0.5, abs=0.06)
    assert priors[1] == pytest.approx(0.25, abs=0.03)


def test_without_a_start_or_labels_nothing_changes(tiny_bert: Path, store: TokenStore) -> None:
    plain = ranker(tiny_bert, "none")
    fit_start(
        plain,
        [gold_labels(next(store.pools([0])), with_intents=False)],
        store,
        FP32,
        CPU,
        0,
        has_head=False,
        fits_slope=True,
    )
    assert plain.similarity_start is None
    made = ranker(tiny_bert, "separate")
    assert made.similarity_start is not None
    before = made.similarity_start.slope.item(), made.similarity_start.offset.item()
    pool = gold_labels(next(store.pools([0])), with_intents=False)
    wrong = pool.labels == 0
    only_wrong = type(pool)(
        pool.row, pool.candidates[wrong], pool.labels[wrong], pool.intent_view[wrong], pool.intents, False
    )
    fit_start(made, [only_wrong], store, FP32, CPU, 0, has_head=False, fits_slope=True)
    assert (made.similarity_start.slope.item(), made.similarity_start.offset.item()) == before


def test_the_joint_similarity_keeps_its_slope(tiny_bert: Path, store: TokenStore) -> None:
    pools = [gold_labels(pool, with_intents=False) for pool in store.pools(range(30))]
    starts = []
    for kind in ("separate", "both", "together"):
        made = ranker(tiny_bert, kind)
        fit_start(made, pools, store, FP32, CPU, 0, has_head=False, fits_slope=True)
        start = made.similarity_start
        assert start is not None
        inputs = [x for p in store.pools(range(30)) for x in made.layout.inputs(p.context, None, p.candidates)]
        with torch.inference_mode():
            logits = start(made.eval().similarities(make_batch(inputs, made.layout, CPU)))
        starts.append((start.slope.tolist(), torch.sigmoid(logits).mean().item()))
    separate, both, together = starts
    assert both[0] == pytest.approx([*separate[0], SimilarityStart.TOGETHER_SLOPE], abs=1e-3)
    assert together[0] == SimilarityStart().slope.tolist()
    for _, mean_prob in starts:
        assert mean_prob == pytest.approx(0.25, abs=1e-3)  # one of four candidates is right
