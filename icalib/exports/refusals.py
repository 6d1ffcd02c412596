"""What a format can't express, found before anything is computed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from icalib.calibration.fitted import AffineMap, IsotonicMap
from icalib.core.errors import SettingError
from icalib.encoders.transformer import TransformerEncoder
from icalib.exports.choices import FORMATS, CalibrationChoice, ExportFormat
from icalib.exports.subject import own_calibrator
from icalib.heads.linear import LinearHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.pipeline.inference import FinishedRun
from icalib.uncertainty.estimator import Deterministic, Posterior

_BI_ENCODER: tuple[ExportFormat, ...] = ("sentence-transformer",)
_GRAPH: tuple[ExportFormat, ...] = ("onnx",)
_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


class _Part(NamedTuple):
    """What some runs do, and the formats that express it."""

    has: bool
    what: str
    formats: tuple[ExportFormat, ...] = ()


def exact_format(run: FinishedRun, calibration: CalibrationChoice) -> ExportFormat:
    """Return the format that most programs read among those that compute what the run does.

    Raises:
        SettingError: none does. It says why a cross-encoder doesn't.
    """
    found = _exact_formats(run, calibration)
    if not found:
        check_exportable(run, "cross-encoder", calibration)
    return found[0]


def check_exportable(run: FinishedRun, format: ExportFormat, calibration: CalibrationChoice) -> None:
    """Refuse what a format can't express.

    Raises:
        SettingError: names the part, and what to do.
    """
    for part in _parts(run, calibration):
        if format not in part.formats:
            others = [f"Export with --format {other}, or add" for other in _exact_formats(run, calibration)[:1]]
            raise SettingError(
                f"{run.folder.path} can't be exported with --format {format}: {part.what}. {''.join(others) or 'Add'} "
                "--distil, which trains a cross-encoder to give the run's probabilities and measures what that costs."
            )


def check_installed(format: ExportFormat) -> None:
    """Refuse a format whose packages aren't installed.

    Raises:
        SettingError: one is missing.
    """
    missing = [name for name in _ONNX_PACKAGES if format == "onnx" and find_spec(name) is None]
    if missing:
        raise SettingError(
            f"--format onnx needs packages that are not installed: {', '.join(missing)}. Run "
            "`pip install 'icalib[onnx]'`."
        )


def _exact_formats(run: FinishedRun, calibration: CalibrationChoice) -> list[ExportFormat]:
    parts = _parts(run, calibration)
    return [format for format in FORMATS if all(format in part.formats for part in parts)]


def _parts(run: FinishedRun, calibration: CalibrationChoice) -> list[_Part]:
    """Return the parts of a run that not every format expresses."""
    method, map_ = run.settings.settings, run.fitted.calibration
    found = f"its calibration is {own_calibrator(run)}, which isn't linear in the logit (--calibration platt is)"
    is_bent = calibration == "run" and not isinstance(map_, AffineMap | None)
    parts = [_Part(is_bent, found, _GRAPH if isinstance(map_, IsotonicMap) else ())]
    if method.regime.trains:
        parts += [*_passes(run), *_logit(run)]
    else:
        parts.append(_Part(True, "it ranks by a bi-encoder, which reads both texts separately", _BI_ENCODER))
    return [part for part in parts if part.has]


def _passes(run: FinishedRun) -> list[_Part]:
    """Return why a probability may take more than one pass over one text, which no format expresses."""
    method, (_, estimator) = run.settings.settings, run.members[0]
    views = method.regime.view_rule() is not None
    passes = not isinstance(estimator, Deterministic.Config | Posterior.Config)
    softmax = method.loss.link == "softmax"
    return [
        _Part(views, "it chooses between two texts of a context by the intents that it predicts"),
        _Part(len(run.members) > 1, f"its probabilities are averages over {len(run.members)} members"),
        _Part(passes, f"its probabilities are averages over the passes of {estimator.owner.__name__}"),
        _Part(softmax, "its probabilities are a softmax over all candidates of a pool, not of a pair"),
    ]


def _logit(run: FinishedRun) -> list[_Part]:
    """Return what the logit of a trained run may be made of besides one linear layer on one transformer."""
    method, kept = run.settings.settings, run.folder.ranks_by_bi_encoder
    encoder, head, start = method.encoder, method.head, method.similarity_start
    linear = isinstance(head, LinearHead.Config) and run.members[0][1].needs != "posterior"
    closed = isinstance(head, LinearHead.Config | RandomFeatureHead.Config)
    transformer, in_graph = isinstance(encoder, TransformerEncoder.Config), (*_BI_ENCODER, *_GRAPH)
    return [
        _Part(kept, "no epoch of its cross-encoder was better than its bi-encoder, by which it ranks", in_graph),
        _Part(not kept, "its cross-encoder has learnt from labels", ("cross-encoder", *_GRAPH)),
        _Part(not transformer, f"its encoder is {encoder.owner.__name__}", _BI_ENCODER),
        _Part(
            not linear, f"its head is {head.owner.__name__}, not one linear layer", in_graph if closed else _BI_ENCODER
        ),
        _Part(start != "none", f"its logit adds the cosine of both texts (`similarity_start` is {start})", in_graph),
    ]
