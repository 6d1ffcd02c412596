"""The metrics of pools without a right candidate, which tables have where there are such pools."""

from __future__ import annotations

from icalib.metrics.answerability import (
    abstention_nauc,
    answerability,
    auroc_answerable,
    false_accepts,
    has_fitted_none,
    has_unanswerable,
    none_bins,
    precision_or_zero,
    unanswerable,
)
from icalib.metrics.calibration import ece_of
from icalib.metrics.metric import Metric
from icalib.metrics.pairs import FloatArray
from icalib.metrics.samples import PoolSamples


def _answerability(samples: PoolSamples) -> tuple[FloatArray, FloatArray]:
    """Return the pools' confidence that a candidate is right, and whether none is, [R, B] each."""
    evaluation, drawn = samples.evaluation, samples.drawn
    return evaluation.once(answerability)[drawn], evaluation.once(unanswerable)[drawn]


def _abstention(samples: PoolSamples) -> FloatArray:
    confidence, _ = _answerability(samples)
    return abstention_nauc(confidence, samples.evaluation.once(precision_or_zero)[samples.drawn])


NONE_METRICS: tuple[Metric, ...] = (
    Metric(
        "AUROC_none",
        "none",
        "maximize",
        "probability that a pool with a right candidate has a lower p_none than one without",
        lambda samples: auroc_answerable(*_answerability(samples)),
        heading="AUROC of none",
        applies=has_unanswerable,
    ),
    Metric(
        "false_accepts@90",
        "none",
        "minimize",
        "fraction of pools without a right candidate that are accepted with 90 % of the others",
        lambda samples: false_accepts(*_answerability(samples)),
        heading="false accepts at 90 %",
        applies=has_unanswerable,
    ),
    Metric(
        "nAUC_none",
        "none",
        "maximize",
        "MTEB's abstention nAUC of average precision, 0 without a right candidate, by 1 − p_none",
        _abstention,
        heading="abstention nAUC",
        applies=has_unanswerable,
    ),
    Metric(
        "ECE_none",
        "none",
        "minimize",
        "expected calibration error of p_none, 10 equal bins",
        lambda samples: ece_of(samples.bins(none_bins)),
        heading="ECE of none",
        biased=True,
        bounds=(0, 1),
        applies=has_fitted_none,
    ),
    Metric(
        "none_rate",
        "none",
        None,
        "fraction of pools without a right candidate",
        lambda samples: samples.mean(unanswerable),
        heading="none right",
        has_interval=False,
        applies=has_unanswerable,
    ),
)
