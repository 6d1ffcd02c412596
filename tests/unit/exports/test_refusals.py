"""What a format can't express is refused before anything is computed, with the alternative."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import small_settings

from icalib.calibration.fitted import AnyMap, FocalInverseMap, IsotonicMap
from icalib.core.errors import SettingError
from icalib.core.files import write_json
from icalib.core.run_folder import RunFolder
from icalib.exports import refusals
from icalib.exports.choices import FORMATS
from icalib.exports.refusals import check_exportable, check_installed, exact_format
from icalib.parts.job import PartName
from icalib.parts.sum import PARTS_FILE, PartWeight, SumOfParts
from icalib.pipeline.evaluation import Fitted
from icalib.pipeline.finished import FinishedRun
from icalib.scoring.gain import GainRule

ISOTONIC = IsotonicMap(logits=(0.0, 1.0), probs=(0.1, 0.9))


def finished(method: str, map_: AnyMap | None = None, members: int = 1, **changes: Any) -> FinishedRun:
    settings = small_settings(method, Path("pools"), Path("minilm"), **changes)
    fitted = Fitted(rule=GainRule(), calibration=map_, decision_threshold=0.5)
    own = settings.settings.uncertainty
    return FinishedRun(RunFolder("runs/x"), settings, fitted, ((Path("model"), own),) * members)


def with_parts(run: FinishedRun, folder: Path, *names: PartName) -> FinishedRun:
    """The run with these parts in its sum, if it has a sum."""
    parts = tuple(PartWeight(name=name, weight=1.0) for name in names)
    write_json(folder / PARTS_FILE, SumOfParts(parts=parts).model_dump(mode="json"))
    return replace(run, members=tuple((folder, estimator) for _, estimator in run.members))


@pytest.mark.parametrize(
    ("run", "found", "exact"),
    [
        (finished("bert", ISOTONIC, calibration="isotonic"), "its calibration is isotonic", None),
        (finished("bert", FocalInverseMap(gamma=2.0)), "--calibration platt is", None),
        (finished("sngp"), "RandomFeatureHead", "onnx"),
        (finished("pg-drr"), "PolyaGammaHead", None),
        (finished("mc-dropout"), "the passes of MCDropout", None),
        (finished("ensemble", members=3), "averages over 3 members", None),
        (finished("icast"), "intents", None),
        (finished("grn", loss="binary-cross-entropy"), "GraphEncoder", None),
        (finished("iart"), "IART", None),
        (finished("jm"), "softmax", None),
        (finished("dual-encoder"), "ranks by a bi-encoder", "sentence-transformer"),
    ],
    ids=lambda value: value.config.method if isinstance(value, FinishedRun) else "",
)
def test_what_a_cross_encoder_cant_express(run: FinishedRun, found: str, exact: str | None, tmp_path: Path) -> None:
    check_refusal(with_parts(run, tmp_path, "cross"), found, exact)


@pytest.mark.parametrize(
    ("parts", "found", "exact"),
    [
        (("similarity",), "ranks by a bi-encoder", "sentence-transformer"),
        (("similarity", "cross"), "a sum of the parts similarity, cross", None),
    ],
)
def test_a_cross_encoder_is_not_a_sum_of_other_parts(
    parts: tuple[PartName, ...], found: str, exact: str | None, tmp_path: Path
) -> None:
    check_refusal(with_parts(finished("bert"), tmp_path, *parts), found, exact)


def check_refusal(run: FinishedRun, found: str, exact: str | None) -> None:
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
    with pytest.raises(SettingError, match="exported as it is: "):
        exact_format(run, "run")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(SettingError, match=r"not installed: onnxruntime.*icalib\[onnx\]"):
        check_installed("onnx")
    check_installed("cross-encoder")
