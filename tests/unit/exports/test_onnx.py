"""Graphs against icalib's own probabilities, by the real onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ranker_config

from icalib.calibration.fitted import AffineMap, IsotonicMap
from icalib.core.errors import SettingError
from icalib.exports import onnx
from icalib.exports.subject import Subject
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.ranker import Ranker
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, Posterior

HEAD = RandomFeatureHead.Config(num_features=64)
ISOTONIC = IsotonicMap(logits=(-1.0, 0.0, 2.0), probs=(0.1, 0.4, 0.9))


def subject(backbone: Path, estimator: AbstractEstimator.Config, calibration: Any = None, **changes: Any) -> Subject:
    separated = bool(changes.pop("turn_separators", False))
    config = ranker_config(backbone, turn_separators=separated).model_copy(update=changes)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        ranker = Ranker(config).eval()
        for parameter in ranker.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6)
        if isinstance(estimator, Posterior.Config):
            some = torch.randn(64, 64)
            ranker.answer_head.factor_LL = torch.linalg.cholesky(some @ some.T / 64 + torch.eye(64))
    return Subject(run=None, ranker=ranker, estimator=estimator, calibration=calibration, calibrator="", scores={})  # type: ignore[arg-type]


@pytest.mark.nightly  # one of a whole run is in tests/pipeline/test_export.py
@pytest.mark.parametrize(
    ("family", "estimator", "calibration", "changes"),
    [
        ("bert", Deterministic.Config(), AffineMap(slope=2.0, offset=0.1), {"similarity_start": "both"}),
        ("bert", Deterministic.Config(), None, {"similarity_start": "separate", "turn_separators": True}),
        ("bert", Posterior.Config(), ISOTONIC, {"similarity_start": "both", "head": HEAD}),
        ("roberta", Posterior.Config(integration="mean_field"), None, {"similarity_start": "together", "head": HEAD}),
        ("roberta", Deterministic.Config(), None, {"similarity_start": "both"}),
    ],
)
def test_the_graph_computes_what_icalib_does(
    family: str,
    estimator: AbstractEstimator.Config,
    calibration: Any,
    changes: dict[str, Any],
    tiny_bert: Path,
    tiny_roberta: Path,
    tmp_path: Path,
) -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    made = subject(tiny_bert if family == "bert" else tiny_roberta, estimator, calibration, **changes)
    assert onnx.write_graph(made, tmp_path / "model.onnx") < 1e-4


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(SettingError, match=r"needs onnxruntime, which is not installed.*icalib\[onnx\]"):
        onnx.check_installed()
