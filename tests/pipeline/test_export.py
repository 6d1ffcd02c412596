"""Finished runs exported: read back by the real sentence-transformers, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.runs import Silent, run_context, small_settings
from huggingface_hub import ModelCard
from scipy.special import logit

import icalib
from icalib.cli import main
from icalib.core.component import with_settings
from icalib.core.errors import ExportError, SettingError
from icalib.core.files import read_json
from icalib.data.pools import as_pools, iter_pools
from icalib.data.schema import Pool
from icalib.pipeline.inference import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import RunContext, run

PLAIN = {"post_training": None, "similarity_start": "none"}


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    return run_context(tmp_path_factory.mktemp("runs"), Silent())


def finished(
    around: RunContext, pools: Path, backbone: Path, name: str, method: str = "bert", **changes: Any
) -> FinishedRun:
    settings = small_settings(method, pools, backbone)
    changed = with_settings(settings.settings, {**PLAIN, **changes})
    return FinishedRun.open(run(settings.model_copy(update={"settings": changed, "experiment": name}), around).path)


@pytest.fixture(scope="module")
def plain(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    """One pass, a linear head, Platt scaling: all of it folds."""
    return finished(around, tiny_pools, tiny_bert, "plain", calibration="platt")


@pytest.fixture(scope="module")
def pools(tiny_pools: Path) -> list[Pool]:
    return [pool for batch in iter_pools(tiny_pools, "test") for pool in as_pools(batch)][:10]


def cross_encoder(folder: Path) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", local_files_only=True)


def test_the_stock_cross_encoder_gives_the_runs_calibrated_probabilities(
    plain: FinishedRun, pools: list[Pool], tmp_path: Path
) -> None:
    folder = icalib.export(plain.folder.path, tmp_path / "model")
    model, ranker = cross_encoder(folder), LoadedRanker.load(plain.folder.path)
    separator = read_json(folder / "icalib_export.json")["texts"]["utterance_separator"]
    assert isinstance(model.activation_fn, torch.nn.Sigmoid)
    for pool in pools:
        context = [turn.text for turn in pool.context]
        expected = ranker.predict_proba([(context, candidate) for candidate in pool.candidates])
        found = model.predict([(separator.join(context), candidate) for candidate in pool.candidates])
        np.testing.assert_allclose(logit(found.astype(np.float64)), logit(expected), atol=1e-5)
        assert icalib.pair_texts(folder, context, pool.candidates)[0][0] == separator.join(context)
        scores = [one["score"] for one in model.rank(separator.join(context), list(pool.candidates))]
        np.testing.assert_allclose(scores, [one.prob for one in ranker.rank(context, pool.candidates)], atol=1e-6)
