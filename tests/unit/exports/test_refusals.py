"""What a format can't express is refused before anything is computed, with the alternative."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.runs import small_settings

from icalib.calibration.fitted import AnyMap, FocalInverseMap, IsotonicMap
from icalib.core.component import with_settings
from icalib.core.errors import SettingError
from icalib.core.run_folder import RunFolder
from icalib.exports.refusals import check_cross_encoder, check_onnx
from icalib.models.config import RankerConfig
from icalib.pipeline.evaluation import Fitted
from icalib.pipeline.inference import FinishedRun
from icalib.scoring.gain import GainRule

DISTIL = "Add --distil"
ISOTONIC = IsotonicMap(logits=(0.0, 1.0), probs=(0.1, 0.9))


def finished(method: str, map_: AnyMap | None = None, members: int = 1, **changes: Any) -> FinishedRun:
    settings = small_settings(method, Path("pools"), Path("minilm"))
    settings = settings.model_copy(update={"settings": with_settings(settings.settings, changes)})
    fitted = Fitted(rule=GainRule(), calibration=map_, decision_threshold=0.5)
    own = settings.settings.uncertainty
    return FinishedRun(RunFolder("runs/x"), settings, fitted, ((Path("model"), own),) * members)


def config_of(run: FinishedRun) -> RankerConfig:
    method = run.settings.settings
    return RankerConfig(encoder=method.encoder, head=method.head, similarity_start=method.similarity_start)


NONE = {"similarity_start": "none"}


@pytest.mark.parametrize(
    ("run", "found", "cure"),
    [
        (finished("bert"), "cosine of context and candidate", "--format onnx"),
        (finished("bert", ISOTONIC, calibration="isotonic", **NONE), "its calibration is isotonic", "--format onnx"),
        (finished("sngp", **NONE), "RandomFeatureHead", "or export with --format onnx"),
        (finished("pg-drr", **NONE), "PolyaGammaHead", DISTIL),
        (finished("mc-dropout", **NONE), "the passes of MCDropout", DISTIL),
        (finished("ensemble", members=3, **NONE), "averages over 3 members", DISTIL),
        (finished("icast", **NONE), "intents", DISTIL),
        (finished("grn", loss="binary-cross-entropy", **NONE), "GraphEncoder", DISTIL),
        (finished("iart", **NONE), "IART", DISTIL),
        (finished("jm"), "softmax", DISTIL),
    ],
    ids=lambda value: value.settings.method if isinstance(value, FinishedRun) else "",
)
def test_cross_encoders(run: FinishedRun, found: str, cure: str) -> None:
    with pytest.raises(SettingError) as refused:
        check_cross_encoder(run, config_of(run), "run")
    assert "can't be exported as a cross-encoder" in str(refused.value)
    assert found in str(refused.value)
    assert cure in str(refused.value)


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (finished("pg-drr"), "mixture over sampled chains"),
        (finished("mc-dropout"), "the passes of MCDropout"),
        (finished("grn", loss="binary-cross-entropy"), "GraphEncoder"),
        (finished("icast"), "intents"),
    ],
    ids=lambda value: value.settings.method if isinstance(value, FinishedRun) else "",
)
def test_graphs(run: FinishedRun, found: str) -> None:
    with pytest.raises(SettingError, match=DISTIL) as refused:
        check_onnx(run, config_of(run), "run")
    assert found in str(refused.value)


def test_what_fits_is_not_refused() -> None:
    plain = finished("bert", calibration="isotonic", **NONE)
    check_cross_encoder(plain, config_of(plain), "platt")
    for run in (finished("bert", ISOTONIC, calibration="isotonic"), finished("sngp"), finished("tsst")):
        check_onnx(run, config_of(run), "run")
    focal = finished("bert", FocalInverseMap(gamma=2.0), **NONE)
    with pytest.raises(SettingError, match="--calibration platt"):
        check_onnx(focal, config_of(focal), "run")


def test_untrained_runs_have_nothing_to_export() -> None:
    with pytest.raises(SettingError, match="no model"):
        finished("bm25").check_has_models()
