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
from icalib.exports import refusals
from icalib.exports.choices import FORMATS
from icalib.exports.refusals import check_exportable, check_installed, exact_format
from icalib.pipeline.evaluation import Fitted
from icalib.pipeline.inference import FinishedRun
from icalib.scoring.gain import GainRule

ISOTONIC = IsotonicMap(logits=(0.0, 1.0), probs=(0.1, 0.9))


def finished(method: str, map_: AnyMap | None = None, members: int = 1, **changes: Any) -> FinishedRun:
    settings = small_settings(method, Path("pools"), Path("minilm"))
    settings = settings.model_copy(update={"settings": with_settings(settings.settings, changes)})
    fitted = Fitted(rule=GainRule(), calibration=map_, decision_threshold=0.5)
    own = settings.settings.uncertainty
    return FinishedRun(RunFolder("runs/x"), settings, fitted, ((Path("model"), own),) * members)


NONE = {"similarity_start": "none"}


@pytest.mark.parametrize(
    ("run", "found", "exact"),
    [
        (finished("bert"), "cosine of both texts", "onnx"),
        (finished("bert", ISOTONIC, calibration="isotonic", **NONE), "its calibration is isotonic", "onnx"),
        (finished("bert", FocalInverseMap(gamma=2.0), **NONE), "--calibration platt is", None),
        (finished("sngp", **NONE), "RandomFeatureHead", "onnx"),
        (finished("pg-drr", **NONE), "PolyaGammaHead", None),
        (finished("mc-dropout", **NONE), "the passes of MCDropout", None),
        (finished("ensemble", members=3, **NONE), "averages over 3 members", None),
        (finished("icast", **NONE), "intents", None),
        (finished("grn", loss="binary-cross-entropy", **NONE), "GraphEncoder", None),
        (finished("iart", **NONE), "IART", None),
        (finished("jm"), "softmax", None),
        (finished("dual-encoder"), "ranks by a bi-encoder", "sentence-transformer"),
    ],
    ids=lambda value: value.settings.method if isinstance(value, FinishedRun) else "",
)
def test_what_a_cross_encoder_cant_express(run: FinishedRun, found: str, exact: str | None) -> None:
    with pytest.raises(SettingError) as refused:
        check_exportable(run, "cross-encoder", "run")
    assert found in str(refused.value)
    assert "--distil" in str(refused.value)
    if exact is not None:
        assert f"Export with --format {exact}, or add --distil" in str(refused.value)
        assert exact_format(run, "run") == exact
        return
    for format in FORMATS:
        with pytest.raises(SettingError, match="Add --distil"):
            check_exportable(run, format, "run")
    with pytest.raises(SettingError, match="--format cross-encoder"):
        exact_format(run, "run")


def test_a_linear_ranker_is_a_cross_encoder() -> None:
    plain = finished("bert", ISOTONIC, calibration="isotonic", **NONE)
    assert exact_format(plain, "platt") == "cross-encoder"
    with pytest.raises(SettingError, match="its cross-encoder has learnt from labels"):
        check_exportable(plain, "sentence-transformer", "platt")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(SettingError, match=r"not installed: onnxruntime.*icalib\[onnx\]"):
        check_installed("onnx")
    check_installed("cross-encoder")
