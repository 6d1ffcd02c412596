"""Probabilities of candidates that compete within their pool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def pool_softmax(logit_N: Floats, sizes_P: npt.NDArray[np.int64]) -> Floats:
    """Return the softmax over each pool's candidates, [N]."""
    starts_P = np.cumsum(sizes_P) - sizes_P
    largest_P = np.maximum.reduceat(logit_N, starts_P)
    weight_N = np.exp(logit_N - np.repeat(largest_P, sizes_P))
    return weight_N / np.repeat(np.add.reduceat(weight_N, starts_P), sizes_P)
