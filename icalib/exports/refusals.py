"""What a format can't express, found before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import SettingError
from icalib.encoders.transformer import TransformerEncoder
from icalib.exports.choices import FORMATS, CalibrationChoice, ExportFormat
from icalib.exports.subject import own_calibrator
from icalib.heads.linear import LinearHead
from icalib.heads.random_features import RandomFeatureHead
from icalib.parts.sum import PARTS_FILE, SumOfParts
from icalib.pipeline.finished import FinishedRun
from icalib.uncertainty.estimator import Deterministic, Posterior

_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_DISTIL = "--distil, which trains a cross-encoder to give the run's probabilities and measures what that costs."


def exact_format(run: FinishedRun, calibration: CalibrationChoice) -> ExportFormat:
    """Return the format that most programs read among those that compute what the run does, or raise a SettingError."""
    found = _exact_formats(run, calibration)
    if not found:
        what = next(what for what, formats in _parts(run, calibration) if "cross-encoder" not in formats)
        raise SettingError(f"{run.folder.path} can't be exported as it is: {what}. Add {_DISTIL}")
    return found[0]


def check_exportable(run: FinishedRun, format: ExportFormat, calibration: CalibrationChoice) -> None:
    """Refuse what a format can't express by a SettingError, which names the part and says what to do."""
    for what, formats in _parts(run, calibration):
        if format not in formats:
            others = [f"Export with --format {other}, or add" for other in _exact_formats(run, calibration)[:1]]
            raise SettingError(
                f"{run.folder.path} can't be exported with --format {format}: {what}. {''.join(others) or 'Add'} "
                f"{_DISTIL}"
            )


def check_installed(format: ExportFormat) -> None:
    """Refuse a format whose packages aren't installed."""
    missing = [name for name in _ONNX_PACKAGES if format == "onnx" and find_spec(name) is None]
    if missing:
        raise SettingError(
            f"--format onnx needs packages that are not installed: {', '.join(missing)}. Run "
            "`pip install 'icalib[onnx]'`."
        )


def _exact_formats(run: FinishedRun, calibration: CalibrationChoice) -> list[ExportFormat]:
    parts = list(_parts(run, calibration))
    return [format for format in FORMATS if all(format in formats for _, formats in parts)]


def _parts(run: FinishedRun, calibration: CalibrationChoice) -> Iterator[tuple[str, tuple[ExportFormat, ...]]]:
    """Yield what a run does that not every format expresses, with the formats that do."""
    method, map_ = run.config.settings, run.fitted.of_pairs.calibration
    if (calibration == "run" or not method.regime.trains) and not isinstance(map_, AffineMap | None):
        linear = "--calibration platt" if method.regime.trains else "a run with --set calibration=platt"
        yield f"its calibration is {own_calibrator(run)}, which isn't linear in the logit ({linear} is)", ()
    if not method.regime.trains:
        yield "it ranks by a bi-encoder, which reads both texts separately", ("sentence-transformer",)
        return
    estimator, num_members = run.members[0][1], len(run.members)
    if method.regime.view_rule() is not None:
        yield "it chooses between two texts of a context by the intents that it predicts", ()
    if num_members > 1:
        yield f"its probabilities are averages over {num_members} members", ()
    if not isinstance(estimator, Deterministic.Config | Posterior.Config):
        yield f"its probabilities are averages over the passes of {estimator.owner.__name__}", ()
    if method.loss.link == "softmax":
        yield "its probabilities are a softmax over all candidates of a pool, not of a pair", ()
    used = SumOfParts.load(run.members[0][0] / PARTS_FILE).used
    if used == ("similarity",):
        yield "it ranks by a bi-encoder, which reads both texts separately", ("sentence-transformer",)
        return
    if used != ("cross",):
        yield f"its logit is a sum of the parts {', '.join(used)}", ()
        return
    yield "it ranks by a cross-encoder", ("cross-encoder", "onnx")
    if not isinstance(method.encoder, TransformerEncoder.Config):
        yield f"its encoder is {method.encoder.owner.__name__}", ("sentence-transformer",)
    if not isinstance(method.head, LinearHead.Config) or estimator.needs == "posterior":
        is_closed = isinstance(method.head, LinearHead.Config | RandomFeatureHead.Config)
        found = f"its head is {method.head.owner.__name__}, not one linear layer"
        yield found, ("sentence-transformer", "onnx") if is_closed else ("sentence-transformer",)
