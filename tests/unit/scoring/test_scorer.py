from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.scoring import score_pools
from helpers.tiny_models import ranker_config, tiny_ranker
from torch import Tensor

from icalib.core.errors import PosteriorError
from icalib.data.encoding import TokenStore
from icalib.encoders.transformer import Batch
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.ranker import Ranker
from icalib.scoring.cross import LoadedCross, _view_column, predict_intents
from icalib.scoring.gain import IntentChoice
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout, Posterior

ROWS = [7, 2, 30]


@pytest.fixture(scope="module")
def ranker(tiny_bert: Path, intents: tuple[str, ...]) -> Ranker:
    return tiny_ranker(tiny_bert, intents=intents)


def context(ranker: Ranker, estimator: AbstractEstimator.Config, max_tokens: int = 2048) -> LoadedCross:
    return LoadedCross(ranker, estimator.build(), torch.device("cpu"), "fp32", max_tokens)


def test_a_deterministic_score_is_the_logit_of_the_pair(ranker: Ranker, store: TokenStore) -> None:
    scores, intents = score_pools(context(ranker, Deterministic.Config()), store, ROWS, with_intents=True, seed=1)
    assert intents is not None
    layout = ranker.layout
    expected = []
    chosen = dict(zip(ROWS, intents["intents"].to_pylist(), strict=True))
    for with_intents in (False, True):
        for pool in store.pools(ROWS):
            ids = layout.context_ids(pool.context, chosen[pool.row] if with_intents else None)
            for candidate in pool.candidates:
                pair, start = layout.pair(ids, candidate)
                segments = (torch.arange(len(pair)) >= start).long()
                batch = Batch(torch.from_numpy(pair.astype(np.int64))[None], segments[None], torch.tensor([len(pair)]))
                with torch.inference_mode():
                    expected.append(ranker.answer_logits(batch).item())
    np.testing.assert_allclose(scores["logit_mean"].to_numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scores["prob_mean"].to_numpy(), 1 / (1 + np.exp(-np.array(expected))), rtol=1e-4)


def test_a_posteriors_score_is_the_integral_over_it_and_its_mean_the_logit(tiny_bert: Path, store: TokenStore) -> None:
    config = ranker_config(tiny_bert).model_copy(update={"head": RandomFeatureHead.Config(num_features=64)})
    torch.manual_seed(0)
    ranker = Ranker(config).eval()
    with pytest.raises(PosteriorError, match="no posterior"):
        score_pools(context(ranker, Posterior.Config()), store, ROWS, with_intents=False, seed=1)
    nothing = {"precision": torch.zeros(64, 64, dtype=torch.float64), "count": torch.tensor([0])}
    ranker.answer_head.condition([nothing], seed=0)
    sure, unsure = (
        score_pools(context(ranker, estimator.Config()), store, ROWS, with_intents=False, seed=1)[0]
        for estimator in (Deterministic, Posterior)
    )
    logit, var = (unsure[name].to_numpy() for name in ("logit_mean", "logit_var"))
    np.testing.assert_allclose(logit, sure["logit_mean"].to_numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var, 1, atol=0.5)  # the prior's
    shrunk = 1 / (1 + np.exp(-logit / np.sqrt(1 + np.pi * var / 8)))
    np.testing.assert_allclose(unsure["prob_mean"].to_numpy(), shrunk, atol=0.006)
    assert set(unsure["num_passes"].to_pylist()) == {1}


def test_intents_are_asked_one_after_the_other_given_those_before(
    ranker: Ranker, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = store.pools(range(len(store)))
    pool = next(pool for pool in pools if len(pool.context) == 3 and sum(map(len, pool.context)) < 40)
    number = len(ranker.config.intents)
    answers = iter([{0: 0.9, 3: 0.7}, {}, {1: 0.6}])
    asked: list[list[int]] = []

    def scripted(batch: Batch) -> Tensor:
        asked.append(batch.ids_BL[0].tolist())
        probs = torch.full((1, number), 0.5)  # not above the threshold
        for intent, prob in next(answers).items():
            probs[0, intent] = prob
        return torch.logit(probs.double())

    monkeypatch.setattr(ranker, "intent_logits", scripted)
    assert predict_intents(context(ranker, Deterministic.Config()), [pool]) == [[[0, 3], [], [1]]]
    first = ranker.layout.first_intent
    one, two, three = (u.tolist() for u in pool.context)
    cls, sep = ranker.layout.cls, ranker.layout.separator
    assert asked == [
        [cls, *one, sep],
        [cls, *one, first, first + 3, *two, sep],
        [cls, *one, first, first + 3, *two, *three, sep],
    ]


def test_gold_intents_play_no_part_in_scores(ranker: Ranker, store: TokenStore) -> None:
    pools = list(store.pools(ROWS))
    blind = [type(pool)(**{**vars(pool), "intents": [[] for _ in pool.context]}) for pool in pools]
    one, two = (predict_intents(context(ranker, Deterministic.Config()), some) for some in (pools, blind))
    assert one == two


def test_a_pool_without_intents_has_the_same_scores_in_both_views(
    ranker: Ranker, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = len(ranker.config.intents)

    def scripted(batch: Batch) -> Tensor:
        """No intents for texts of an odd length."""
        return torch.where(batch.lengths_B % 2 == 1, -9.0, 9.0)[:, None].double().repeat(1, number)

    monkeypatch.setattr(ranker, "intent_logits", scripted)

    made = context(ranker, MCDropout.Config(num_passes=4))
    scores, intents = score_pools(made, store, ROWS, with_intents=True, seed=1)
    assert intents is not None
    names = intents["intents"].to_pylist()
    plain, tilde = ([row for row in scores.to_pylist() if row["view"] == view] for view in ("plain", "intent"))
    assert [row["candidate"] for row in plain] == [row["candidate"] for row in tilde]
    is_same = {row: not any(map(len, chosen)) for row, chosen in zip(ROWS, names, strict=True)}
    assert set(is_same.values()) == {True, False}
    for one, two in zip(plain, tilde, strict=True):
        assert ({**one, "view": "intent"} == two) == is_same[one["row"]]


def test_the_views_have_dropout_masks_of_their_own(ranker: Ranker, store: TokenStore) -> None:
    dropout, pools = context(ranker, MCDropout.Config(num_passes=2)), list(store.pools(ROWS))
    plain, again, intent = (_view_column(dropout, pools, None, view, seed=1) for view in ("plain", "plain", "intent"))
    np.testing.assert_array_equal(plain.mean_SN, again.mean_SN)
    assert (plain.mean_SN != intent.mean_SN).all()


def test_choices_of_intents() -> None:
    probs = np.array([0.1, 0.6, 0.55, 0.4])
    assert IntentChoice().chosen(probs).tolist() == [1, 2]
    assert IntentChoice(threshold=0.58).chosen(probs).tolist() == [1]
    assert IntentChoice().chosen(probs / 10).tolist() == []
    assert IntentChoice(choice="argmax").chosen(probs / 10).tolist() == [1]
    assert IntentChoice(choice="top_k", top_k=3).chosen(probs / 10).tolist() == [1, 2, 3]
    assert IntentChoice(choice="top_k", top_k=9).chosen(probs).tolist() == [0, 1, 2, 3]
