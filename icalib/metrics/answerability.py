"""Telling pools with a right candidate from unanswerable ones, in which none is right.

The unit is the pool. Its confidence is 1 − p_none, the probability that a candidate is right; where p_none was not
fitted, it is the probability of the candidate that is ranked first. Functions take [..., Q] arrays of Q pools and keep
leading axes (resamples).
"""

from __future__ import annotations

import numpy as np

from icalib.metrics.calibration import NUM_BINS, BinSums, bin_sums
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.ranking import average_precision, top_candidate
from icalib.metrics.selective import auroc, sorted_errors

RECALL = 0.9
"""Fraction of answerable pools that `false_accepts` accepts."""
ABSTENTION_RATES = np.linspace(0, 1, 11)[:-1]
"""Rates of MTEB's abstention curves: 0, 0.1 … 0.9."""


def has_unanswerable(scores: PoolScores) -> bool:
    """Whether a pool has no right candidate."""
    return not bool(scores.answerable.all())


def has_fitted_none(scores: PoolScores) -> bool:
    """Whether a pool has no right candidate, and p_none was fitted."""
    return scores.p_none is not None and has_unanswerable(scores)


def none_bins(scores: PoolScores) -> BinSums:
    """Return the bins of p_none, [B, M]; "right" is here that no candidate is."""
    assert scores.p_none is not None
    return bin_sums(scores.p_none, unanswerable(scores).astype(np.int64), NUM_BINS, group=np.arange(scores.num_pools))


def answerability(scores: PoolScores) -> FloatArray:
    """Return the confidence that a candidate is right, [B]."""
    return top_candidate(scores).prob if scores.p_none is None else 1 - scores.p_none


def unanswerable(scores: PoolScores) -> FloatArray:
    """Return 1 for pools without a right candidate and 0 for the others, [B]."""
    return (~scores.answerable).astype(np.float64)


def precision_or_zero(scores: PoolScores) -> FloatArray:
    """Return the average precision, [B], which is 0 where no candidate is right."""
    return np.nan_to_num(average_precision(scores), nan=0.0)


def auroc_answerable(confidence: FloatArray, is_unanswerable: FloatArray) -> FloatArray:
    """Return the probability that an answerable pool is more confident than an unanswerable one: [...].

    Ties count half; NaN without both.

    Example:
        >>> float(auroc_answerable(np.array([0.9, 0.8, 0.3, 0.7]), np.array([0.0, 1.0, 1.0, 0.0])))
        0.75
    """
    return auroc(confidence, is_unanswerable)


def false_accepts(confidence: FloatArray, is_unanswerable: FloatArray, recall: float = RECALL) -> FloatArray:
    """Return the fraction of unanswerable pools that are accepted with at least `recall` of the answerable ones: [...].

    The threshold is the highest confidence that accepts so many; tied pools are accepted together. NaN without both
    kinds of pools.

    Example:
        >>> float(false_accepts(np.array([0.9, 0.8, 0.3, 0.7]), np.array([0.0, 1.0, 1.0, 0.0])))
        0.5
    """
    rows = np.reshape(confidence, (-1, np.shape(confidence)[-1]))
    is_none = np.reshape(is_unanswerable, rows.shape) > 0
    num_answerable = (~is_none).sum(axis=1)
    needed = np.maximum(1, np.ceil(recall * num_answerable - 1e-9)).astype(np.int64)  # 0.9 · 10 may be above 9
    answerable_down = -np.sort(np.where(is_none, np.inf, -rows), axis=1)
    threshold = np.take_along_axis(answerable_down, needed[:, np.newaxis] - 1, axis=1)
    accepted = (is_none & (rows >= threshold)).sum(axis=1).astype(np.float64)
    num_none = is_none.sum(axis=1)
    found = np.full(len(rows), np.nan)
    np.divide(accepted, num_none, out=found, where=(num_none > 0) & (num_answerable > 0))
    return found.reshape(np.shape(confidence)[:-1])


def abstention_nauc(confidence: FloatArray, value: FloatArray) -> FloatArray:
    """Return MTEB's normalised area under the abstention curve (arXiv 2402.12997): [...].

    The curve is the mean value of the pools that remain when the least confident 0 %, 10 % … 90 % are left unanswered;
    its area is 0 for the mean of all pools at every rate, and 1 for the perfect order. Tied pools have their mean
    value, which is MTEB's curve in expectation over the order of ties. NaN if all values are the same.

    Args:
        confidence: [..., Q].
        value: a measure of each pool, e.g. its average precision, [..., Q].
    """
    reached, perfect = _abstention_curve(confidence, value), _abstention_curve(value, value)
    flat = perfect[..., 0] * ABSTENTION_RATES[-1]
    gain = np.asarray(np.trapezoid(reached, ABSTENTION_RATES, axis=-1) - flat)
    possible = np.asarray(np.trapezoid(perfect, ABSTENTION_RATES, axis=-1) - flat)
    return np.divide(gain, possible, out=np.full(possible.shape, np.nan), where=possible > 1e-12)


def _abstention_curve(confidence: FloatArray, value: FloatArray) -> FloatArray:
    """Return the mean value of the pools that are answered at each rate, [..., rates]."""
    num_pools = np.shape(value)[-1]
    answered = [num_pools - min(round(rate * num_pools), num_pools - 1) for rate in ABSTENTION_RATES.tolist()]
    means = np.cumsum(sorted_errors(confidence, value), axis=-1) / np.arange(1, num_pools + 1)
    return means[..., np.array(answered) - 1]
