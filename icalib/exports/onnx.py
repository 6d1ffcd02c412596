"""A folder with the whole ranker as an ONNX graph, posterior and calibration included, and its tokenizer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from icalib.calibration.fitted import pair_logit
from icalib.core.errors import ExportError, SettingError
from icalib.encoders.transformer import Batch
from icalib.exports.cross_encoder import attention_mask, random_batch
from icalib.exports.graph import INPUTS, OUTPUTS, RankerGraph
from icalib.exports.subject import Subject
from icalib.metrics.pairs import FloatArray
from icalib.scoring.scorer import estimated

OPSET = 20
MODEL = "model.onnx"
_TOLERANCE = 1e-4
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def check_installed() -> None:
    """Check that the packages of the extra are installed.

    Raises:
        SettingError: one is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise SettingError(
            f"--format onnx needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed."
            " Run `pip install 'icalib[onnx]'`."
        )


def write_graph(subject: Subject, path: Path) -> float:
    """Write the graph of a ranker, with dynamic numbers of pairs and tokens, and compare it with the ranker.

    Returns:
        The largest difference of logits and probabilities on random tokens, between onnxruntime and torch.

    Raises:
        ExportError: they differ by more than 1e-4.
    """
    subject.ranker.encoder.backbone.set_attn_implementation("eager")
    if subject.ranker.bi_encoder is not None:
        subject.ranker.bi_encoder.encoder.backbone.set_attn_implementation("eager")
    graph = RankerGraph(subject).eval()
    example = inputs_of(random_batch(subject.ranker, num_pairs=3))
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet():
        torch.onnx.export(
            graph,
            tuple(example.values()),
            str(path),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_shapes=(dynamic,) * len(INPUTS),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return compare(subject, path)


def inputs_of(batch: Batch) -> dict[str, Tensor]:
    """Return the inputs of the graph [B, L], by name."""
    mask_BL = attention_mask(batch)
    return dict(zip(INPUTS, (batch.ids_BL, mask_BL, batch.segments_BL), strict=True))


def compare(subject: Subject, path: Path) -> float:
    """Return the largest difference between a graph's outputs and the ranker's; see `write_graph`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest = 0.0
    for num_pairs, seed in ((1, 1), (7, 2)):  # other shapes than those of the example
        batch = random_batch(subject.ranker, num_pairs=num_pairs, seed=seed)
        given = {name: tensor.numpy() for name, tensor in inputs_of(batch).items()}
        outputs = cast("list[FloatArray]", session.run(list(OUTPUTS), given))
        found: Mapping[str, FloatArray] = dict(zip(OUTPUTS, outputs, strict=True))
        for name, expected_B in expected(subject, batch).items():
            difference_B = np.abs(found[name] - expected_B) / np.maximum(np.abs(expected_B), 1)
            largest = max(largest, float(difference_B.max()))
    if not largest <= _TOLERANCE:
        raise ExportError(
            f"the exported graph's outputs differ from the ranker's by {largest:.1e} on random tokens; at most "
            f"{_TOLERANCE:g} was expected. Nothing was written. Export with --distil --format cross-encoder, and "
            "report this with the run's config.yaml."
        )
    return largest


def expected(subject: Subject, batch: Batch) -> dict[str, FloatArray]:
    """Return what the graph's outputs must be [B], from icalib's own estimator and calibration."""
    moments = estimated(subject.ranker, subject.estimator.build(), batch)
    prob, logit, var = (
        tensor.double().numpy() for tensor in (moments.prob_mean, moments.logit_mean, moments.logit_var)
    )
    mean_logit = pair_logit(prob, logit)
    calibrated = prob if subject.calibration is None else subject.calibration.apply(mean_logit)
    return dict(zip(OUTPUTS, (np.where(var > 0, mean_logit, logit), calibrated, var), strict=True))


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Silence the exporter, whose notes are for those who write graphs."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
