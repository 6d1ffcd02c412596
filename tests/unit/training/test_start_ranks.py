"""Which models' initial weights may be the best ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.artifacts import known
from helpers.train_jobs import answer_job

from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.config import RankerConfig
from icalib.training.answers import TrainJob
from icalib.uncertainty.estimator import MCDropout

SUMMED_UP = RandomFeatureHead.Config.model_validate({"laplace": "ema", "ridge_choice": "fixed"})


def made(ranker: dict[str, Any], changes: dict[str, Any], folder: Path) -> TrainJob:
    if "pseudo_labels" in changes:
        changes = {**changes, "pseudo_labels": known(folder / changes["pseudo_labels"])}
    return answer_job(folder, RankerConfig.model_validate({"similarity_start": "separate", **ranker}), **changes)


@pytest.mark.parametrize(
    ("ranker", "changes", "ranks"),
    [
        ({}, {}, True),
        ({"similarity_start": "none"}, {}, False),
        ({}, {"views_with_intents": True}, False),  # its intent head is untrained
        ({}, {"views_with_intents": True, "pseudo_labels": "round"}, True),  # a student
        ({"head": RandomFeatureHead.Config()}, {}, True),
        ({"head": SUMMED_UP}, {}, False),  # its posterior is summed up in training
        ({"head": PolyaGammaHead.Config()}, {}, True),
    ],
)
def test_the_start_ranks(ranker: dict[str, Any], changes: dict[str, Any], ranks: bool, tmp_path: Path) -> None:
    assert made(ranker, changes, tmp_path).start_ranks == ranks


@pytest.mark.parametrize(
    ("similarity", "changes", "keeps"),
    [
        ("separate", {}, False),  # the bi-encoder has no dropout
        ("together", {}, True),
        ("separate", {"pseudo_labels": "round"}, True),  # a student is at first its teacher, whose head has moved
    ],
)
def test_a_start_without_dropout_is_never_kept_for_passes_with_dropout(
    similarity: str, changes: dict[str, Any], keeps: bool, tmp_path: Path
) -> None:
    ranker = {"similarity_start": similarity}
    assert made(ranker, {**changes, "estimator": MCDropout.Config()}, tmp_path).may_keep_start == keeps
    assert made(ranker, changes, tmp_path).may_keep_start
