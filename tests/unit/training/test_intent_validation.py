from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker
from sklearn.metrics import f1_score

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker, make_batch
from icalib.training.settings import TrainingSettings
from icalib.training.validation import MACRO, MICRO, PlainValidation, ValidationWithIntents

CPU = torch.device("cpu")
SETTINGS = TrainingSettings(precision="fp32")


@pytest.fixture(scope="module")
def ranker(tiny_bert: Path, intents: tuple[str, ...]) -> Ranker:
    made = tiny_ranker(tiny_bert, intents=intents)
    with torch.no_grad():
        assert made.intent_head is not None
        made.intent_head.weight.mul_(50)  # so that it predicts some intents and not others
    return made


@pytest.fixture(scope="module")
def held_out(tokens: Path) -> TokenStore:
    return TokenStore(tokens / "validation.arrow")


def validation(store: TokenStore, ranker: Ranker) -> ValidationWithIntents:
    rows = list(range(len(store)))
    return ValidationWithIntents(PlainValidation(store, rows, SETTINGS, CPU))


def test_f1_is_that_of_scikit_learn(held_out: TokenStore, ranker: Ranker) -> None:
    gold, predicted = [], []
    for pool in held_out.pools(range(len(held_out))):
        for utterance, names in enumerate(pool.intents):
            if len(names):
                hot = np.zeros(len(ranker.config.intents), int)
                hot[list(names)] = 1
                gold.append(hot)
                question = ranker.layout.intent_question(pool.context, pool.intents, utterance)
                with torch.inference_mode():
                    logits = ranker.intent_logits(make_batch([question], ranker.layout, CPU))
                predicted.append((logits[0] > 0).int().numpy())
    y_true, y_pred = np.array(gold), np.array(predicted)
    occurs = y_true.any(0)
    assert 0 < y_pred.mean() < 1
    found = validation(held_out, ranker)
    metrics = found.metrics([found(ranker, 0, 1)])
    assert metrics[MICRO] == pytest.approx(f1_score(y_true, y_pred, average="micro"))
    expected = f1_score(y_true[:, occurs], y_pred[:, occurs], average="macro", zero_division=0)
    assert metrics[MACRO] == pytest.approx(expected)
