"""Selective answering: risk and coverage when only confident pools are answered.

The unit is the pool: its error is 1 − hit@1, its confidence the probability of the candidate that is ranked first.
Functions take [..., Q] arrays of Q pools and keep leading axes (resamples).
"""

from __future__ import annotations

import numpy as np

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


def auroc(confidence: FloatArray, error: FloatArray) -> FloatArray:
    """Return the probability that a hit is more confident than an error, ties counting half: [...].

    NaN without both. An error between 0 and 1 counts as that fraction of an error and the rest of a hit.
    """
    errors = sorted_errors(confidence, error)
    num_errors = errors.sum(axis=-1, keepdims=True)
    less_confident = num_errors - np.cumsum(errors, axis=-1) + errors / 2
    ordered_pairs = ((1 - errors) * less_confident).sum(axis=-1)
    all_pairs = (num_errors * (np.shape(errors)[-1] - num_errors))[..., 0]
    return np.divide(ordered_pairs, all_pairs, out=np.full(all_pairs.shape, np.nan), where=all_pairs > 0)
