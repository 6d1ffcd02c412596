"""What a format can't express, found before anything is computed; each message names what to do instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from icalib.calibration.fitted import AffineMap, FocalInverseMap
from icalib.core.errors import SettingError
from icalib.encoders.transformer import TransformerEncoder
from icalib.exports.choices import CalibrationChoice, ExportFormat
from icalib.exports.subject import own_calibrator
from icalib.heads.linear import LinearHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.config import RankerConfig
from icalib.pipeline.inference import FinishedRun
from icalib.uncertainty.estimator import Deterministic, Posterior

_DISTIL = "Add --distil, which trains one cross-encoder to give the run's probabilities and measures what that costs"
_ONNX = "export with --format onnx, which contains it"

_TO_RANK = "Give a run of dual-encoder, or export as a cross-encoder with --distil"
_AS_BI_ENCODER = "Export with --format sentence-transformer, which contains it, or add --distil"

_NAMES: Mapping[ExportFormat, str] = {
    "cross-encoder": "a cross-encoder",
    "sentence-transformer": "a bi-encoder for sentence-transformers",
    "onnx": "an ONNX graph",
}


def check_cross_encoder(run: FinishedRun, config: RankerConfig, calibration: CalibrationChoice) -> None:
    """Refuse what one transformer with one linear layer and a sigmoid can't compute.

    Raises:
        SettingError: names the part, and what to do.
    """
    for found, cure in _not_one_pass(run):
        raise _refusal(run, "cross-encoder", found, cure)
    if not isinstance(config.encoder, TransformerEncoder.Config):
        raise _refusal(run, "cross-encoder", f"its encoder is {config.encoder.owner.__name__}", _DISTIL)
    if not isinstance(config.head, LinearHead.Config) or run.members[0][1].needs == "posterior":
        both = f"{_DISTIL}, or {_ONNX}" if isinstance(config.head, RandomFeatureHead.Config) else _DISTIL
        raise _refusal(run, "cross-encoder", f"its head is {config.head.owner.__name__}, not one linear layer", both)
    if run.folder.ranks_by_bi_encoder:
        found = "no epoch of its cross-encoder was better than its bi-encoder, by which it ranks"
        raise _refusal(run, "cross-encoder", found, _AS_BI_ENCODER)
    if config.similarity_start != "none":
        raise _refusal(
            run,
            "cross-encoder",
            f"its logit adds the cosine of context and candidate (`similarity_start` is {config.similarity_start})",
            f"{_DISTIL}, or {_ONNX}; a run with --set similarity_start=none has one linear layer",
        )
    if calibration == "run" and not isinstance(run.fitted.calibration, AffineMap | None):
        raise _refusal(
            run,
            "cross-encoder",
            f"its calibration is {own_calibrator(run)}, which isn't linear in the logit",
            f"Fit another one by --calibration platt, or {_ONNX}"
            if not isinstance(run.fitted.calibration, FocalInverseMap)
            else "Fit another one by --calibration platt",
        )


def check_onnx(run: FinishedRun, config: RankerConfig, calibration: CalibrationChoice) -> None:
    """Refuse what the ONNX graph doesn't contain.

    Raises:
        SettingError: names the part, and what to do.
    """
    format: ExportFormat = "onnx"
    for found, cure in _not_one_pass(run):
        raise _refusal(run, format, found, cure)
    if not isinstance(config.encoder, TransformerEncoder.Config):
        raise _refusal(run, format, f"its encoder is {config.encoder.owner.__name__}", _DISTIL)
    if not isinstance(config.head, LinearHead.Config | RandomFeatureHead.Config):
        found = f"the posterior of its {config.head.owner.__name__} is a mixture over sampled chains"
        raise _refusal(run, format, found, _DISTIL)
    if calibration == "run" and isinstance(run.fitted.calibration, FocalInverseMap):
        raise _refusal(
            run, format, "its calibration, focal-inverse, has no closed form", "Fit another one by --calibration platt"
        )


def check_is_ranker(run: FinishedRun, format: ExportFormat) -> None:
    """Refuse runs that rank by a bi-encoder without labels, which has no cross-encoder.

    Raises:
        SettingError: names what to do.
    """
    if not run.settings.settings.regime.trains:
        found = "it ranks by a bi-encoder, which reads context and candidate separately"
        raise _refusal(run, format, found, _AS_BI_ENCODER)


def check_sentence_transformer(run: FinishedRun, calibration: CalibrationChoice, *, distil: bool) -> None:
    """Refuse runs that don't rank by the cosine of a bi-encoder alone.

    Raises:
        SettingError: names the part, and what to do.
    """
    format: ExportFormat = "sentence-transformer"
    if distil:
        raise SettingError("a student (--distil) is a cross-encoder. Leave out --format sentence-transformer.")
    if calibration == "run" and not isinstance(run.fitted.calibration, AffineMap | None):
        found = f"its calibration is {own_calibrator(run)}, which isn't linear in the logit"
        raise _refusal(run, format, found, "Fit another one by --calibration platt")
    if not run.settings.settings.regime.trains:
        return
    for found, _ in _not_one_pass(run):
        raise _refusal(run, format, found, _TO_RANK)
    if not run.folder.ranks_by_bi_encoder:
        raise _refusal(run, format, "its cross-encoder has learnt from labels", _TO_RANK)


def _not_one_pass(run: FinishedRun) -> Iterator[tuple[str, str]]:
    """Yield why a run's probability isn't computed by one pass over one text, and what to do."""
    method = run.settings.settings
    if method.regime.view_rule() is not None:
        yield "it chooses between two texts of a context by the intents that it predicts", _DISTIL
    if len(run.members) > 1:
        yield f"its probabilities are averages over {len(run.members)} members", _DISTIL
    _, estimator = next(iter(run.members))
    if not isinstance(estimator, Deterministic.Config | Posterior.Config):
        yield f"its probabilities are averages over the passes of {estimator.owner.__name__}", _DISTIL
    if method.loss.link == "softmax":
        yield "its probabilities are a softmax over all candidates of a pool, not of a pair", _DISTIL


def _refusal(run: FinishedRun, format: ExportFormat, found: str, cure: str) -> SettingError:
    return SettingError(f"{run.folder.path} can't be exported as {_NAMES[format]}: {found}. {cure}.")
