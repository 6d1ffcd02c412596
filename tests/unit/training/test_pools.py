from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from helpers.scoring import score_pools
from helpers.tiny_models import BUDGET
from scipy.special import log_softmax, softmax

from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.encoders.graph import GraphEncoder
from icalib.encoders.joint import JointEncoder
from icalib.losses.listwise import AbstractPoolLoss, PoolCrossEntropy
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker
from icalib.scoring.cross import LoadedCross
from icalib.training.examples import gold_labels
from icalib.training.pools import PoolCurriculum
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic

CPU = torch.device("cpu")


@pytest.fixture(params=[JointEncoder, GraphEncoder])
def ranker(request: pytest.FixtureRequest, tiny_bert: Path) -> Ranker:
    encoder = request.param.Config(backbone=str(tiny_bert), budget=BUDGET)
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=encoder, link="softmax")).eval()


def curriculum(ranker: Ranker, store: TokenStore, rows: range, **settings: object) -> PoolCurriculum:
    pools = gold_labels(store, rows, with_intents=False)
    made = TrainingSettings.model_validate(settings)
    return PoolCurriculum(pools, store, ranker.layout, PoolCrossEntropy.Config().build(), made, seed=1)


def test_an_epoch_holds_each_pool_once_with_its_right_candidate_and_some_wrong_ones(
    ranker: Ranker, store: TokenStore
) -> None:
    batches = curriculum(ranker, store, range(12), batch_size=5, train_negatives=2).batches(0)
    assert sorted(example.row for batch in batches for example in batch) == list(range(12))
    assert max(map(len, batches)) == 5
    for labels in (example for batch in batches for example in batch):
        assert sorted(labels.labels) == [0, 0, 1]
        assert labels.candidates[labels.labels == 1].tolist() == [store.pool(labels.row).label]
        assert len(set(labels.candidates.tolist())) == 3


def test_the_right_candidate_moves_and_wrong_ones_change_from_epoch_to_epoch(ranker: Ranker, store: TokenStore) -> None:
    made = curriculum(ranker, store, range(40), train_negatives=2)
    epochs = [[example for batch in made.batches(epoch) for example in batch] for epoch in (0, 1, 2, 0)]
    orders = [[labels.candidates.tolist() for labels in epoch] for epoch in epochs]
    assert orders[0] == orders[3] != orders[1]
    places = Counter(int(labels.labels.argmax()) for epoch in epochs[:3] for labels in epoch)
    assert min(places[place] for place in range(3)) > 25  # 120 in all: a third each, give or take
    drawn = [labels for epoch in epochs for labels in epoch if labels.row == 0]
    assert len({tuple(sorted(labels.candidates.tolist())) for labels in drawn}) > 1


def test_the_loss_of_a_batch_is_the_sum_over_its_pools_wherever_they_are_computed(
    ranker: Ranker, store: TokenStore
) -> None:
    made = curriculum(ranker, store, range(6), batch_size=6, train_negatives=2)
    (batch,) = made.batches(0)
    with torch.inference_mode():
        whole = made.losses(ranker, batch, CPU)[1]
        shares = sum(made.losses(ranker, batch[rank::4], CPU)[1] for rank in range(4))
    torch.testing.assert_close(whole, shares, rtol=1e-5, atol=1e-5)


def scored(ranker: Ranker, store: TokenStore, rows: Sequence[int]) -> pa.Table:
    context = LoadedCross(ranker, Deterministic.Config().build(), CPU, "fp32", 512)
    return score_pools(context, store, rows, with_intents=False, seed=0)[0]


def test_a_loss_of_whole_pools_is_that_of_the_scored_probabilities(ranker: Ranker, store: TokenStore) -> None:
    rows = [3, 8, 11]
    scores = scored(ranker, store, rows)
    logits = scores["logit_mean"].to_numpy().reshape(3, 4)
    np.testing.assert_allclose(scores["prob_mean"].to_numpy(), softmax(logits, axis=1).ravel(), rtol=1e-9)
    assert set(scores["prob_var"].to_pylist()) == set(scores["mutual_information"].to_pylist()) == {0.0}
    right = [store.pool(row).label for row in rows]
    expected = -log_softmax(logits, axis=1)[np.arange(3), right].sum()
    in_order = gold_labels(store, rows, with_intents=False)
    with torch.inference_mode():
        _, loss = curriculum(ranker, store, range(0)).losses(ranker, in_order, CPU)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


class HalfLoss(AbstractPoolLoss):
    def of_pools(self, sizes_P: Sequence[int], *, with_none: bool = False) -> Any:
        return lambda logits_B, labels_B: logits_B[: len(sizes_P) // 2]


def test_a_loss_that_does_not_give_each_pool_one_is_named(ranker: Ranker, store: TokenStore) -> None:
    made = replace(curriculum(ranker, store, range(4), batch_size=4), loss=HalfLoss({}))
    with pytest.raises(SettingError, match=r"HalfLoss` returned a tensor of shape \[2\]; expected .* shape \[4\]"):
        made.losses(ranker, made.batches(0)[0], CPU)
