"""Dropout in the top layers only: what is below is computed once, and what comes out is what full passes give."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny_models import tiny_ranker
from icalib.encoders.late_dropout import check_dropout_layers
from icalib.scoring.scorer import ScoringContext, score_pools

from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.encoders.iart import IART
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker
from icalib.uncertainty.estimator import AbstractEstimator, MCDropout

CPU = torch.device("cpu")
COLUMNS = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")


def scores(
    ranker: Ranker, store: TokenStore, estimator: AbstractEstimator.Config, precision: Precision = "fp32"
) -> dict[str, list[float]]:
    context = ScoringContext(ranker, ranker.layout, estimator.build(), CPU, precision, 512)
    table, _ = score_pools(context, store, range(8), with_intents=False, seed=3)
    return {name: table[name].to_pylist() for name in COLUMNS}


def test_lower_layers_run_once_and_upper_ones_in_each_pass(tiny_bert: Path, store: TokenStore) -> None:
    ranker = tiny_ranker(tiny_bert)
    backbone = ranker.encoder.backbone
    calls = {"embeddings": 0, "lower": 0, "upper": 0}

    def count(name: str) -> None:
        calls[name] += 1

    for name, module in zip(calls, (backbone.embeddings, *backbone.encoder.layer), strict=True):
        module.register_forward_hook(lambda *_, name=name: count(name))
    context = ScoringContext(ranker, ranker.layout, MCDropout.Config(dropout_layers=1).build(), CPU, "fp32", 2048)
    score_pools(context, store, [0], with_intents=False, seed=0)
    assert calls == {"embeddings": 1, "lower": 1, "upper": 5}


def test_encoders_that_cannot_be_split_are_refused() -> None:
    config = SimpleNamespace(model_type="mpnet", num_hidden_layers=12)
    with pytest.raises(SettingError, match="`some/name` is a mpnet"):
        check_dropout_layers(1, config, "some/name")
    with pytest.raises(SettingError, match="IART has no layers of a transformer"):
        IART.Config().check_dropout_layers(1)
