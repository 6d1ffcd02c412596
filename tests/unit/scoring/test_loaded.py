"""Rankers that are loaded to score: what is prepared once changes no score."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.scoring import score_pools
from helpers.tiny_models import ranker_config

from icalib.data.encoding import TokenStore
from icalib.models.ranker import Ranker, load_for_scoring, load_ranker
from icalib.scoring.cross import LoadedCross
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint(tiny_bert: Path, intents: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder with an intent head."""
    torch.manual_seed(0)
    ranker = Ranker(ranker_config(tiny_bert, intents=intents))
    folder = tmp_path_factory.mktemp("checkpoint")
    ranker.save(folder, ranker.state_dict())
    return folder


@pytest.mark.parametrize("estimator", [Deterministic.Config(), MCDropout.Config(num_passes=2)])
def test_weights_rounded_once_give_the_same_scores(
    estimator: AbstractEstimator.Config, checkpoint: Path, store: TokenStore
) -> None:
    rankers = [load_ranker(checkpoint).eval(), load_for_scoring(checkpoint, "bf16", CPU)]
    tables = [
        score_pools(
            LoadedCross(ranker, ranker.layout, estimator.build(), CPU, "bf16", 2048),
            store,
            [3, 5],
            with_intents=True,
            seed=1,
        )
        for ranker in rankers
    ]
    assert tables[0] == tables[1]
