"""Epochs are judged by what predicts: an estimator's passes, in the view that a rule chooses, and by intents."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.gathering import sent
from helpers.scoring import score_pools
from helpers.tiny_models import tiny_ranker
from helpers.train_jobs import train_job
from sklearn.metrics import f1_score

from icalib.core.errors import IcalibError
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.metrics.calibration import nll
from icalib.metrics.pairs import pool_softmax
from icalib.models.ranker import Ranker, make_batch
from icalib.scoring.cross import LoadedCross
from icalib.scoring.gain import ALWAYS_INTENTS, NEVER_INTENTS, GainRule
from icalib.training import validation as validation_module
from icalib.training.settings import TrainingSettings
from icalib.training.validation import (
    MACRO,
    MICRO,
    PlainValidation,
    PredictiveValidation,
    ValidationWithIntents,
    joined_results,
)
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

CPU = torch.device("cpu")
SETTINGS = TrainingSettings(precision="fp32")
PASSES = MCDropout.Config(num_passes=3)
FEW = Selection(labelled_fraction=0.5, limit={"train": 24, "validation": 12})


@pytest.fixture(scope="module")
def held_out(tokens: Path) -> TokenStore:
    return TokenStore(tokens / "validation.arrow")


@pytest.fixture
def ranker(tiny_bert: Path, intents: tuple[str, ...]) -> Ranker:
    made = tiny_ranker(tiny_bert, intents=intents, dropout=0.5)
    with torch.no_grad():
        torch.nn.init.normal_(made.answer_head.linear.weight, std=0.5, generator=torch.Generator().manual_seed(0))
    return made


def validation(
    store: TokenStore, estimator: AbstractEstimator.Config, rule: GainRule | None = None, seed: int = 1
) -> PredictiveValidation:
    return PredictiveValidation(store, list(range(len(store))), SETTINGS, CPU, estimator, rule, seed=seed)


def test_metrics_are_the_same_however_many_workers_share_the_pools(
    held_out: TokenStore, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_module, "_POOLS_PER_SHARD", 5)
    predictive = validation(held_out, MCDropout.Config(), GainRule(gain_threshold=0.0))
    for judge in (predictive, PlainValidation(held_out, range(len(held_out)), SETTINGS, CPU)):
        alone = judge.metrics([sent(judge(ranker, 0, 1))])
        assert set(alone) == {"class/F1", "rank/R@1", "rank/MAP", "cal/ECE", "cal/NLL"}
        for number in (3, len(held_out) + 1):
            shared = judge.metrics([sent(judge(ranker, rank, number)) for rank in range(number)])
            assert shared == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("gain_threshold", [ALWAYS_INTENTS, NEVER_INTENTS, None])
def test_the_judged_probabilities_are_means_over_passes_in_the_chosen_view(
    held_out: TokenStore, ranker: Ranker, gain_threshold: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_module, "_POOLS_PER_SHARD", len(held_out))
    rule = None if gain_threshold is None else GainRule(gain_threshold=gain_threshold)
    judge = validation(held_out, PASSES, rule)
    measured = judge.metrics([judge(ranker, 0, 1)])["cal/NLL"]

    def expected(estimator: AbstractEstimator.Config, view: str) -> float:
        context = LoadedCross(ranker, estimator.build(), CPU, "fp32", SETTINGS.max_tokens_per_batch)
        seed = child_seed(1, "validation", 0)
        table, _ = score_pools(context, held_out, range(len(held_out)), with_intents=True, seed=seed)
        rows = np.array(table["view"].to_pylist()) == view
        return nll(table["prob_mean"].to_numpy()[rows], table["label"].to_numpy()[rows])

    view, other = ("intent", "plain") if gain_threshold == ALWAYS_INTENTS else ("plain", "intent")
    assert measured == pytest.approx(expected(PASSES, view), rel=1e-6)
    assert measured != pytest.approx(expected(PASSES, other), rel=1e-4)
    assert measured != pytest.approx(expected(Deterministic.Config(), view), rel=1e-4)


def test_a_training_is_validated_by_its_estimator(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    """By two of its passes, however many it has. The intents have their own metric in any case."""
    job = train_job(tiny_pools, tiny_bert, tmp_path, dropout=0.5).model_copy(update={"selection": FEW})
    intents = GainRule(gain_threshold=ALWAYS_INTENTS)
    more = {"estimator": MCDropout.Config(num_passes=7)}
    ways = ({}, {"estimator": PASSES}, {"estimator": PASSES, "rule": intents}, more)
    trainings = [job.model_copy(update=changes).prepare(CPU) for changes in ways]
    model = trainings[0].model.eval()
    with torch.no_grad():
        torch.nn.init.normal_(model.get_parameter("answer_head.linear.weight"), std=0.5)
    found = [made.validation.metrics([sent(made.validation(model, 0, 1))]) for made in trainings if made.validation]
    assert len({metrics[MICRO] for metrics in found}) == 1
    assert len({round(metrics["cal/NLL"], 3) for metrics in found}) == 3
    assert found[3] == found[1]


@pytest.fixture(scope="module")
def intent_ranker(tiny_bert: Path, intents: tuple[str, ...]) -> Ranker:
    made = tiny_ranker(tiny_bert, intents=intents)
    with torch.no_grad():
        assert made.intent_head is not None
        made.intent_head.weight.mul_(50)  # so that it predicts some intents and not others
    return made


def intent_validation(store: TokenStore, intent_ranker: Ranker) -> ValidationWithIntents:
    rows = list(range(len(store)))
    return ValidationWithIntents(PlainValidation(store, rows, SETTINGS, CPU))


def test_f1_is_that_of_scikit_learn(held_out: TokenStore, intent_ranker: Ranker) -> None:
    gold, predicted = [], []
    for pool in held_out.pools(range(len(held_out))):
        for utterance, names in enumerate(pool.intents):
            if len(names):
                hot = np.zeros(len(intent_ranker.config.intents), int)
                hot[list(names)] = 1
                gold.append(hot)
                question = intent_ranker.layout.intent_question(pool.context, pool.intents, utterance)
                with torch.inference_mode():
                    logits = intent_ranker.intent_logits(make_batch([question], intent_ranker.layout, CPU))
                predicted.append((logits[0] > 0).int().numpy())
    y_true, y_pred = np.array(gold), np.array(predicted)
    occurs = y_true.any(0)
    assert 0 < y_pred.mean() < 1
    found = intent_validation(held_out, intent_ranker)
    metrics = found.metrics([found(intent_ranker, 0, 1)])
    assert metrics[MICRO] == pytest.approx(f1_score(y_true, y_pred, average="micro"))
    expected = f1_score(y_true[:, occurs], y_pred[:, occurs], average="macro", zero_division=0)
    assert metrics[MACRO] == pytest.approx(expected)


def test_a_score_that_is_no_number_ends_the_training() -> None:
    """Metrics of such scores may be finite: NaN cosines had an R@1 of 1."""
    with pytest.raises(IcalibError, match="diverged: a validation pool has the score nan"):
        joined_results([[(0, [math.nan, 0.1], [1, 0])]], pool_softmax)
