"""Metrics of telling pools with a right candidate from unanswerable ones, in which none is right.

A pool's confidence is 1 − p_none, or the probability of its first candidate where p_none was not fitted.
"""

from __future__ import annotations

import numpy as np

from icalib.metrics.calibration import BinSums, bin_sums, ece_of
from icalib.metrics.metric import Metric
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.selective import RankedPools, accepted_errors, auroc

RECALL = 0.9
"""Fraction of answerable pools that `false_accepts@90` accepts."""


def has_unanswerable(scores: PoolScores) -> bool:
    """Whether a pool has no right candidate."""
    return not bool(scores.answerable.all())


def answerability(scores: PoolScores) -> FloatArray:
    """Return the confidence that a candidate is right, [B]."""
    return top_candidate(scores).prob if scores.p_none is None else 1 - scores.p_none


def _unanswerable(scores: PoolScores) -> FloatArray:
    return (~scores.answerable).astype(np.float64)


def _none_bins(scores: PoolScores) -> BinSums:
    """Return the bins of p_none, [B, M]; "right" is here that no candidate is."""
    assert scores.p_none is not None
    return bin_sums(scores.p_none, _unanswerable(scores), group=np.arange(scores.num_pools))


def _by_answerability(scores: PoolScores) -> RankedPools:
    """Return the pools by falling confidence that a candidate is right; the "errors" are those in which none is."""
    return RankedPools.by(answerability(scores), _unanswerable(scores))


NONE_METRICS: tuple[Metric, ...] = (
    Metric(
        "AUROC_none",
        "none",
        "maximize",
        "probability that a pool with a right candidate has a lower p_none than one without",
        lambda samples: auroc(samples.blocks(_by_answerability)),
        heading="AUROC of none",
        applies=has_unanswerable,
    ),
    Metric(
        "false_accepts@90",
        "none",
        "minimize",
        "fraction of pools without a right candidate that are accepted with 90 % of the others",
        lambda samples: accepted_errors(samples.blocks(_by_answerability), RECALL),
        heading="false accepts at 90 %",
        applies=has_unanswerable,
    ),
    Metric(
        "ECE_none",
        "none",
        "minimize",
        "expected calibration error of p_none, 10 equal bins",
        lambda samples: ece_of(samples.bins(_none_bins)),
        heading="ECE of none",
        biased=True,
        bounds=(0, 1),
        applies=lambda scores: scores.p_none is not None and has_unanswerable(scores),
    ),
    Metric(
        "none_rate",
        "none",
        None,
        "fraction of pools without a right candidate",
        lambda samples: samples.mean(_unanswerable),
        heading="none right",
        has_interval=False,
        applies=has_unanswerable,
    ),
)
"""Metrics that tables have where some pools have no right candidate."""
