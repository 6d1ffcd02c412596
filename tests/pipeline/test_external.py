"""Stock rerankers as rows of a comparison."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.pool_folders import read_pools
from helpers.stock_models import write_tiny_classifier
from scipy.special import expit, logit

import icalib
from icalib.core.errors import SettingError
from icalib.encoders.off_the_shelf import StockRanker
from icalib.pipeline.evaluation import Fitted
from icalib.scoring.column import pool_sizes


def test_a_stock_reranker_is_a_row_of_compare(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    folder = write_tiny_classifier(tmp_path / "stock.v2", tiny_bert)
    place = {"limit": {"validation": 12, "test": 12}, "backbone": str(tiny_bert), "executor": "local"}
    names, runs = [f"external:{folder}"], tmp_path / "runs"
    compared = icalib.compare(names, tiny_pools, labelled=0.3, seeds=2, runs=runs, **place)  # type: ignore[arg-type]
    assert list(compared.by_method()) == ["bm25", "bi-encoder", "candidates-only", "external-stock.v2"]
    (run,) = compared.by_method()["external-stock.v2"]  # another seed would give the same
    assert "external-stock.v2" in repr(compared)
    predictions = run.folder.predictions("test")
    pools = read_pools(tiny_pools, "test")
    ranker = StockRanker(str(folder), torch.device("cpu"))
    scores = ranker.scores(
        [[turn.text for turn in pool.context] for pool in pools], [pool.candidates for pool in pools]
    )
    by_pool = dict(zip([pool.pool_id for pool in pools], scores, strict=True))
    raw = np.array([by_pool[row["pool_id"]][row["candidate"]] for row in predictions.to_pylist()])
    fitted = Fitted.load(run.folder.fitted_path).calibration
    assert fitted is not None
    prob = predictions["prob"].to_numpy()
    assert prob == pytest.approx(fitted.apply(raw, pool_sizes(predictions["pool_id"].to_numpy())), abs=1e-5)
    of_pairs = fitted.of_pairs.apply(raw)
    assert predictions["logit"].to_numpy() == pytest.approx(logit(of_pairs), abs=1e-5)
    assert np.abs(of_pairs - expit(raw)).max() > 0.01  # Platt scaling on validation, not the model's own sigmoid


def test_a_model_that_can_not_be_used_is_refused_before_anything_runs(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    for name, message in ((f"external:{tiny_bert}", "can't be used"), ("external:", "lacks a model")):
        with pytest.raises(SettingError, match=message):
            icalib.run(name, tiny_pools, labelled=0.3, runs=tmp_path / "runs", executor="local")
    assert not (tmp_path / "runs").exists()


def test_without_sentence_transformers_its_extra_is_named_before_anything_runs(
    tiny_pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(SettingError, match=r"not installed.*pip install 'icalib\[external\]'"):
        icalib.run("external:minilm", tiny_pools, labelled=0.3, runs=tmp_path / "runs", executor="local")
    assert not (tmp_path / "runs").exists()
