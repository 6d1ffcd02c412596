"""The slope and offset of Platt scaling."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit

from icalib.calibration.fitted import AffineMap
from icalib.metrics.pairs import FloatArray, IntArray

_LARGEST_LOG_SLOPE = 15.0


def smoothed_targets(label_N: IntArray) -> FloatArray:
    """Return Platt's targets of right and wrong pairs, with which separable labels have a finite best fit; [N]."""
    is_right = label_N == 1
    right, wrong = int(is_right.sum()), int((~is_right).sum())
    return np.where(is_right, (right + 1) / (right + 2), 1 / (wrong + 2))


def fit_affine(logit_N: FloatArray, label_N: IntArray) -> AffineMap:
    """Fit σ(a f + b), a > 0, with smoothed targets (Platt 1999) to scores and labels [N] by the smallest mean NLL."""
    from scipy.optimize import minimize  # slow to import, and predictions don't fit

    target_N = smoothed_targets(label_N)
    # standardised, so that one start and one tolerance suit the scores of every model
    mean, scale = float(logit_N.mean()), float(logit_N.std()) or 1.0
    f_N = (logit_N - mean) / scale

    def nll_and_gradient(parameters: FloatArray) -> tuple[float, FloatArray]:
        slope, offset = math.exp(parameters[0]), parameters[1]
        z_N = slope * f_N + offset
        residual_N = (expit(z_N) - target_N) / len(z_N)
        nll = float((np.logaddexp(0, z_N) - target_N * z_N).mean())
        return nll, np.array([slope * (residual_N @ f_N), residual_N.sum()])

    best = minimize(
        nll_and_gradient,
        np.array([0.0, logit(target_N.mean())]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_LARGEST_LOG_SLOPE, _LARGEST_LOG_SLOPE), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    slope = math.exp(best.x[0]) / scale
    return AffineMap(slope=slope, offset=float(best.x[1]) - slope * mean)
