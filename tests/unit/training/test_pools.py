from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.observers import Silent
from helpers.tiny_models import BUDGET, token_store
from scipy.special import log_softmax, softmax

from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.data.encoding import TokenPool, TokenStore
from icalib.encoders.graph import GraphEncoder
from icalib.encoders.joint import JointEncoder
from icalib.encoders.transformer import AbstractEncoder
from icalib.losses.listwise import PoolCrossEntropy
from icalib.methods.catalogue import load_method
from icalib.methods.composition import Method
from icalib.models.config import RankerConfig
from icalib.models.pool_inputs import PoolInputs
from icalib.models.ranker import Ranker
from icalib.scoring.scorer import ScoringContext, score_pools
from icalib.training.examples import gold_labels
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.pairs import PlainValidation
from icalib.training.pools import PoolCurriculum, PoolExample
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic

CPU = torch.device("cpu")
ENCODERS = {"jm": JointEncoder, "grn": GraphEncoder}


def ranker_of(name: str, backbone: Path) -> Ranker:
    kind: Any = ENCODERS[name]
    encoder: AbstractEncoder.Config = kind.Config(backbone=str(backbone), budget=BUDGET)
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=encoder, link="softmax")).eval()


@pytest.fixture(params=["jm", "grn"])
def ranker(request: pytest.FixtureRequest, tiny_bert: Path) -> Ranker:
    return ranker_of(request.param, tiny_bert)


def curriculum(ranker: Ranker, store: TokenStore, rows: range, **settings: object) -> PoolCurriculum:
    pools = [gold_labels(pool, with_intents=False) for pool in store.pools(rows)]
    made = TrainingSettings.model_validate(settings)
    return PoolCurriculum(pools, store, ranker.layout, PoolCrossEntropy.Config().build(), made, seed=1)


def test_an_epoch_holds_each_pool_once_with_its_right_candidate_and_some_wrong_ones(
    ranker: Ranker, store: TokenStore
) -> None:
    batches = curriculum(ranker, store, range(12), batch_size=5, train_negatives=2).batches(0)
    examples = [example for batch in batches for example in batch]
    assert sorted(example.labels.row for example in examples) == list(range(12))
    assert max(map(len, batches)) == 5
    for example in examples:
        labels = example.labels
        assert sorted(labels.labels) == [0, 0, 1]
        assert labels.candidates[labels.labels == 1].tolist() == [store.pool(labels.row).label]
        assert len(set(labels.candidates.tolist())) == 3


def test_the_right_candidate_moves_and_wrong_ones_change_from_epoch_to_epoch(ranker: Ranker, store: TokenStore) -> None:
    made = curriculum(ranker, store, range(40), train_negatives=2)
    places, wrong = Counter[int](), set[tuple[int, ...]]()
    for epoch in range(5):
        for batch in made.batches(epoch):
            places.update(int(example.labels.labels.argmax()) for example in batch)
            wrong |= {tuple(sorted(e.labels.candidates.tolist())) for e in batch if e.labels.row == 0}
    assert min(places[place] for place in range(3)) > 40  # 200 in all: a third each, give or take
    assert len(wrong) > 1
    orders = [[e.labels.candidates.tolist() for b in made.batches(epoch) for e in b] for epoch in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("max_tokens", [600, 1200])
def test_no_batch_of_pools_exceeds_the_token_budget(ranker: Ranker, store: TokenStore, max_tokens: int) -> None:
    made = curriculum(ranker, store, range(30), batch_size=64, max_tokens_per_batch=max_tokens)
    batches = made.batches(0)
    for batch in batches:
        inputs = [written for example in batch for written in made._inputs(example.labels)]
        assert len(inputs) * max(len(ids) for ids, _ in inputs) <= max_tokens
    assert max(map(len, batches)) > 1


def test_the_loss_of_a_batch_is_the_sum_over_its_pools_wherever_they_are_computed(
    ranker: Ranker, store: TokenStore
) -> None:
    made = curriculum(ranker, store, range(6), batch_size=6, train_negatives=2)
    (batch,) = made.batches(0)
    with torch.inference_mode():
        whole = made.losses(ranker, batch, CPU)[1]
        shares = sum(made.losses(ranker, batch[rank::4], CPU)[1] for rank in range(4))
    torch.testing.assert_close(whole, shares, rtol=1e-5, atol=1e-5)


def test_a_loss_of_whole_pools_is_that_of_the_scored_probabilities(ranker: Ranker, store: TokenStore) -> None:
    rows = [3, 8, 11]
    context = ScoringContext(ranker, ranker.layout, Deterministic.Config().build(), CPU, "fp32", 512)
    scores, _ = score_pools(context, store, rows, with_intents=False, seed=0)
    logits = scores["logit_mean"].to_numpy().reshape(3, 4)
    np.testing.assert_allclose(scores["prob_mean"].to_numpy(), softmax(logits, axis=1).ravel(), rtol=1e-9)
    assert set(scores["prob_var"].to_pylist()) == set(scores["mutual_information"].to_pylist()) == {0.0}
    assert scores["num_passes"].to_pylist() == [1] * 12
    right = [store.pool(row).label for row in rows]
    expected = -log_softmax(logits, axis=1)[np.arange(3), right].sum()
    in_order = [PoolExample(gold_labels(pool, with_intents=False), 0) for pool in store.pools(rows)]
    with torch.inference_mode():
        _, loss = curriculum(ranker, store, range(0)).losses(ranker, in_order, CPU)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_scores_do_not_depend_on_the_batches(ranker: Ranker, store: TokenStore) -> None:
    one, two = (
        score_pools(
            ScoringContext(ranker, ranker.layout, Deterministic.Config().build(), CPU, "fp32", budget),
            store, range(10), with_intents=False, seed=1,
        )[0]
        for budget in (512, 8192)
    )  # fmt: skip
    np.testing.assert_allclose(one["prob_mean"].to_numpy(), two["prob_mean"].to_numpy(), rtol=1e-5)


def test_pools_of_any_size_can_be_scored(ranker: Ranker, store: TokenStore) -> None:
    pool = store.pool(0)
    pools = [
        TokenPool(**{**vars(pool), "candidates": pool.candidates[:1]}),
        TokenPool(**{**vars(pool), "candidates": pool.candidates * 2}),
    ]
    inputs = PoolInputs.of(pools, ranker.layout, None)
    assert inputs.num_pairs == 9
    assert sorted(np.concatenate([inputs.pairs(np.array([n])) for n in range(len(inputs.inputs))])) == list(range(9))


def test_validation_is_by_softmax_and_argmax_however_many_workers_share_the_pools(ranker: Ranker, tokens: Path) -> None:
    store = TokenStore(tokens / "validation.arrow")
    settings = TrainingSettings(precision="fp32")
    validation = PlainValidation(store, range(len(store)), ranker.layout, settings, CPU, link="softmax")
    alone = validation.metrics([validation(ranker, 0, 1)])
    three = validation.metrics([validation(ranker, rank, 3) for rank in range(3)])
    assert three == pytest.approx(alone, rel=1e-5)
    assert alone["class/F1"] == alone["rank/R@1"]
    context = ScoringContext(ranker, ranker.layout, Deterministic.Config().build(), CPU, "fp32", 8192)
    scores, _ = score_pools(context, store, range(len(store)), with_intents=False, seed=0)
    prob, label = (scores[name].to_numpy() for name in ("prob_mean", "label"))
    assert alone["cal/NLL"] == pytest.approx(-np.log(np.where(label == 1, prob, 1 - prob)).mean(), rel=1e-5)


def test_few_pools_are_learnt_by_heart(ranker: Ranker, store: TokenStore) -> None:
    settings = {"epochs": 25, "learning_rate": 3e-3, "batch_size": 4, "precision": "fp32"}
    made = curriculum(ranker, store, range(4), **settings)
    training = TrainingSettings.model_validate(settings)
    state = train(ranker, LocalEngine(ranker, training), made, training, Silent(), seed=0, validation=None)
    losses = [point["value"] for point in state.log if point["tag"] == "loss/answer_plain"]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("jm", {"uncertainty": "mc-dropout"}, "found MCDropout on LinearHead.*no uncertainty estimate"),
        ("grn", {"head": "random-feature-head"}, "found Deterministic on RandomFeatureHead.*no uncertainty estimate"),
        (
            "grn",
            {"regime.with_intents": True, "uncertainty": "mc-dropout"},
            "Supervised with its settings also trains on intents",
        ),
        (
            "jm",
            {"regime": "self-training", "regime.with_intents": False},
            "SelfTraining with its settings also trains on intents",
        ),
        ("jm", {"loss": "binary-cross-entropy"}, "JointEncoder reads whole pools, and BinaryCrossEntropy is a loss of"),
    ],
)
def test_what_whole_pools_cannot_go_with_is_refused(name: str, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        with_settings(load_method(name), changes)


def test_a_softmax_knows_how_many_candidates_a_pool_has(tiny_bert: Path) -> None:
    for name, negatives in (("jm", None), ("grn", 3)):
        method = load_method(name)
        assert isinstance(method, Method)
        assert (method.regime.train_negatives(), method.train_prior(10)) == (negatives, 0.1)


def test_jm_and_grn_need_no_more_tokens_than_pools_have(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    store = token_store(tiny_pools, "test", tiny_bert, tmp_path)
    pool = store.pool(0)
    joint, graph = (ranker_of(name, tiny_bert).layout for name in ("jm", "grn"))
    assert len(joint.inputs(pool.context, None, pool.candidates)) == 1
    assert len(graph.inputs(pool.context, None, pool.candidates)) == len(pool.candidates)
    for layout in (joint, graph):
        lengths = [len(ids) for ids, _ in layout.inputs(pool.context, None, pool.candidates)]
        assert lengths == layout.input_lengths(pool.context, None, pool.candidates)


@pytest.mark.parametrize(
    ("changes", "candidates", "fits"),
    [
        ({}, 7, True),
        ({"encoder.read": "cls"}, 10, True),
        ({"encoder.read": "cls"}, 7, False),
        ({"encoder.read": "cls", "regime.training.train_negatives": 3}, 10, False),
        ({"encoder.read": "cls", "encoder.num_candidates": 7, "regime.training.train_negatives": 9}, 7, True),
    ],
)
def test_pools_without_a_candidate_for_each_slot_are_refused_before_training(
    changes: dict[str, object], candidates: int, fits: bool
) -> None:
    method = with_settings(load_method("jm"), changes)
    assert isinstance(method, Method)
    if fits:
        method.encoder.check(method.sizes_of_pools(candidates))
        return
    with pytest.raises(SettingError, match=r"encoder\.read=cls has 10 slots.*encoder\.read=marker"):
        method.encoder.check(method.sizes_of_pools(candidates))
