"""Graphs against icalib's own probabilities, by the real onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ranker_config

from icalib.calibration.fitted import AffineMap, IsotonicMap
from icalib.core.errors import ExportError
from icalib.data.questions import unlabelled_pool
from icalib.data.schema import Utterance
from icalib.encoders.backbone import Tokenizer
from icalib.exports.agreement import ranker_scorer
from icalib.exports.onnx import write_onnx
from icalib.exports.subject import IDENTITY, Subject
from icalib.exports.texts import stock_tokenizer, texts_of
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.ranker import Ranker
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, Posterior

HEAD = RandomFeatureHead.Config(num_features=64)
ISOTONIC = IsotonicMap(logits=(-1.0, 0.0, 2.0), probs=(0.1, 0.4, 0.9))


def subject(backbone: Path, estimator: AbstractEstimator.Config, calibration: Any, **changes: Any) -> Subject[Ranker]:
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
    return Subject(run=None, model=ranker, estimator=estimator, calibration=calibration, calibrator="", scores={})  # type: ignore[arg-type]


@pytest.mark.nightly  # one of a whole run is in tests/pipeline/test_export.py
@pytest.mark.parametrize(
    ("family", "estimator", "calibration", "changes"),
    [
        ("bert", Deterministic.Config(), AffineMap(slope=2.0, offset=0.1), {"turn_separators": True}),
        ("roberta", Posterior.Config(integration="mean_field"), IDENTITY, {"head": HEAD}),
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
    backbone = tiny_bert if family == "bert" else tiny_roberta
    made = subject(backbone, estimator, calibration, **changes)
    layout = made.model.layout
    tokenizer = stock_tokenizer(str(backbone), layout, has_segments=made.model.encoder.has_segments)
    texts = texts_of(layout, Tokenizer(str(backbone)), tokenizer, 3) if family == "bert" else None
    comparison = write_onnx(made, tmp_path, tokenizer, texts)
    context = [Utterance(speaker="user", text=text) for text in ("My printer hums", "which one?", "restart it")]
    pools = [unlabelled_pool("", context[:1], ["ok", "restart it " * 40]), unlabelled_pool("", context, ["yes"])]
    found = comparison.agreement(pools)
    assert (found.num_same_tokens, found.largest_difference < 1e-4) == (3, True)
    wrong = replace(made, calibration=AffineMap(slope=1.1, offset=0.0))
    with pytest.raises(ExportError, match="outputs differ from those of the run's"):
        comparison._replace(expected=ranker_scorer(wrong)).agreement(pools)
