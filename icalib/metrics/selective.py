"""Selective answering: risk and coverage when only confident pools are answered.

The unit is the pool: its error is 1 − hit@1, its confidence the probability of the candidate that is ranked first.
Metrics take [..., Q] arrays of Q pools and keep leading axes (resamples). `coverage_threshold` and `selective_risk` fit
on validation pools which ones to answer, and take [Q].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from icalib.core.errors import DataError, SettingError
from icalib.metrics.calibration import wilson_interval
from icalib.metrics.pairs import FloatArray


def sorted_errors(confidence: FloatArray, error: FloatArray) -> FloatArray:
    """Return errors by falling confidence; blocks of equal confidence get their mean error: [..., Q]."""
    rows = np.reshape(confidence, (-1, np.shape(confidence)[-1]))
    order = np.argsort(-rows, axis=-1, kind="stable")
    confidence_down = np.take_along_axis(rows, order, axis=-1)
    error_down = np.take_along_axis(np.reshape(error, rows.shape), order, axis=-1)
    starts_block = np.ones(rows.shape, dtype=bool)
    starts_block[:, 1:] = confidence_down[:, 1:] != confidence_down[:, :-1]
    block = np.cumsum(starts_block) - 1
    mean_error = np.bincount(block, weights=error_down.ravel()) / np.bincount(block)
    return mean_error[block].reshape(np.shape(confidence))


def risk_coverage(confidence: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coverage i/Q, [Q], and risk, the mean error of the i most confident pools, [..., Q]."""
    num_pools = np.shape(error)[-1]
    answered = np.arange(1, num_pools + 1)
    risk = np.cumsum(sorted_errors(confidence, error), axis=-1) / answered
    return answered / num_pools, risk


def aurc(confidence: FloatArray, error: FloatArray) -> FloatArray:
    """Return the area under the risk-coverage curve, (1/Q) Σ_i risk_i (Geifman et al. 2019): [...].

    Example:
        >>> round(float(aurc(np.array([0.9, 0.8, 0.4]), np.array([0.0, 1.0, 0.0]))), 3)
        0.278
    """
    return risk_coverage(confidence, error)[1].mean(axis=-1)


def e_aurc(confidence: FloatArray, error: FloatArray) -> FloatArray:
    """Return AURC minus that of the perfect order, which answers all hits first: [...]."""
    return aurc(confidence, error) - aurc(-error, error)


def risk_at_coverage(confidence: FloatArray, error: FloatArray, coverage: float) -> FloatArray:
    """Return the risk when the smallest number of pools that reaches this coverage is answered: [...]."""
    return risk_coverage(confidence, error)[1][..., _num_answered(coverage, np.shape(error)[-1]) - 1]


def coverage_at_risk(confidence: FloatArray, error: FloatArray, risk: float) -> FloatArray:
    """Return the largest coverage whose risk is at most this, else 0: [...]."""
    coverage, risks = risk_coverage(confidence, error)
    within = risks <= risk + 1e-12  # the mean errors of tied blocks don't add up exactly
    return np.where(within, coverage, 0).max(axis=-1)


class SelectiveRisk(NamedTuple):
    """Coverage and risk when only pools with confidence ≥ `threshold` are answered; Wilson interval of the risk."""

    threshold: float
    coverage: float
    risk: float
    low: float
    high: float


def coverage_threshold(confidence: FloatArray, coverage: float) -> float:
    """Return the largest confidence t such that at least this fraction of pools has confidence ≥ t; confidence: [Q].

    Raises:
        SettingError: the coverage is not above 0 and at most 1.
        DataError: there are no pools, or a confidence is NaN.
    """
    if not 0 < coverage <= 1:
        raise SettingError(f"the coverage is {coverage:g}; expected a fraction above 0 and at most 1, e.g. 0.8.")
    if not confidence.size or np.isnan(confidence).any():
        raise DataError(
            f"no threshold can be fitted on {confidence.size} pools, {int(np.isnan(confidence).sum())} of them without "
            "a confidence",
            "Fit it on validation pools that are scored.",
            field="confidence",
        )
    return float(np.sort(confidence)[-_num_answered(coverage, confidence.size)])


def selective_risk(confidence: FloatArray, error: FloatArray, coverage: float, *, level: float = 0.95) -> SelectiveRisk:
    """Return the risk among the pools that `coverage_threshold` answers; confidence, error: [Q].

    Tied pools are answered together, so the actual coverage may be larger.

    Raises:
        SettingError, DataError: see `coverage_threshold`.
    """
    threshold = coverage_threshold(confidence, coverage)
    answered = confidence >= threshold
    num_errors, num_answered = error[answered].sum(), np.asarray(answered.sum(), np.float64)
    low, high = wilson_interval(num_errors, num_answered, level)
    return SelectiveRisk(threshold, float(answered.mean()), float(num_errors / num_answered), float(low), float(high))


def auroc(confidence: FloatArray, error: FloatArray) -> FloatArray:
    """Return the probability that a hit is more confident than an error, ties counting half: [...].

    NaN without both hits and errors. An error between 0 and 1 counts as that fraction of an error and the rest of a
    hit.
    """
    errors = sorted_errors(confidence, error)
    num_errors = errors.sum(axis=-1, keepdims=True)
    less_confident = num_errors - np.cumsum(errors, axis=-1) + errors / 2
    ordered_pairs = ((1 - errors) * less_confident).sum(axis=-1)
    all_pairs = (num_errors * (np.shape(errors)[-1] - num_errors))[..., 0]
    return np.divide(ordered_pairs, all_pairs, out=np.full(all_pairs.shape, np.nan), where=all_pairs > 0)


def _num_answered(coverage: float, num_pools: int) -> int:
    """Return the smallest number of pools that reaches the coverage."""
    return max(1, math.ceil(coverage * num_pools - 1e-9))  # 0.8 · 35 is above 28 in floats
