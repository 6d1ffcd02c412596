from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import ranker_config
from icalib.training.similarity_fit import fit_start
from sklearn.linear_model import LogisticRegression

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker, SimilarityStart, make_batch
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")
FP32 = TrainingSettings(precision="fp32", max_tokens_per_batch=512)
ROWS = range(30)


@pytest.fixture(scope="module")
def pools(store: TokenStore) -> list[PairLabels]:
    return [gold_labels(pool, with_intents=False) for pool in store.pools(ROWS)]


def ranker(backbone: Path, kind: str) -> Ranker:
    torch.manual_seed(0)
    return Ranker(ranker_config(backbone).model_copy(update={"similarity_start": kind})).train()


def fit(made: Ranker, pools: list[PairLabels], store: TokenStore, settings: TrainingSettings = FP32) -> None:
    fit_start(made, pools, store, settings, CPU, 0, has_head=False, fits_slope=True)


def similarities(made: Ranker, store: TokenStore) -> torch.Tensor:
    inputs = [x for p in store.pools(ROWS) for x in made.layout.inputs(p.context, None, p.candidates)]
    with torch.inference_mode():
        return made.eval().similarities(make_batch(inputs, made.layout, CPU))


def test_slope_and_offset_are_those_of_logistic_regression(
    tiny_bert: Path, store: TokenStore, pools: list[PairLabels]
) -> None:
    made = ranker(tiny_bert, "separate")
    fit(made, pools, store)
    assert made.training
    start = made.similarity_start
    assert start is not None
    label = np.concatenate([pool.labels for pool in pools])
    expected = LogisticRegression(C=1e6, tol=1e-8).fit(similarities(made, store).numpy().reshape(-1, 1), label)
    slope = float(expected.coef_[0, 0])
    if slope > 0.1:  # a slope is never negative; targets are smoothed
        assert start.slope.item() == pytest.approx(slope, rel=0.2)
        assert start.offset.item() == pytest.approx(float(expected.intercept_[0]), rel=0.2, abs=0.05)
    else:
        assert 0 <= start.slope.item() < 0.2


def test_without_a_start_or_labels_nothing_changes(tiny_bert: Path, store: TokenStore, pools: list[PairLabels]) -> None:
    plain = ranker(tiny_bert, "none")
    fit(plain, pools[:1], store)
    assert plain.similarity_start is None
    made = ranker(tiny_bert, "separate")
    assert made.similarity_start is not None
    before = made.similarity_start.slope.item(), made.similarity_start.offset.item()
    fit(made, [replace(pools[0], labels=np.zeros_like(pools[0].labels))], store)
    assert (made.similarity_start.slope.item(), made.similarity_start.offset.item()) == before


def test_the_joint_similarity_keeps_its_slope_and_wrong_candidates_are_as_frequent_as_in_training(
    tiny_bert: Path, store: TokenStore, pools: list[PairLabels]
) -> None:
    def fitted(kind: str, negatives: int | None = None) -> tuple[list[float], float]:
        made = ranker(tiny_bert, kind)
        fit(made, pools, store, FP32.model_copy(update={"train_negatives": negatives}))
        start = made.similarity_start
        assert start is not None
        with torch.inference_mode():
            return start.slope.tolist(), torch.sigmoid(start(similarities(made, store))).mean().item()

    separate, both, together = map(fitted, ("separate", "both", "together"))
    assert both[0] == pytest.approx([*separate[0], SimilarityStart.TOGETHER_SLOPE], abs=1e-3)
    assert together[0] == SimilarityStart().slope.tolist()
    for _, mean_prob in (separate, both, together):
        assert mean_prob == pytest.approx(0.25, abs=1e-3)  # one of four candidates is right
    assert fitted("separate", 1)[1] == pytest.approx(0.5, abs=0.06)
