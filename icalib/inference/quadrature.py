"""Integrals of the logistic function over Gaussian logits."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icalib.inference.mutual_information import binary_entropy

MEAN_FIELD_FACTOR = math.pi / 8
"""The λ for which the logistic and the normal distribution function have the same slope at 0."""


class ProbabilityMoments(NamedTuple):
    """Mean, variance and mean entropy (nats) of p = σ(f) for a Gaussian logit f, all in float64."""

    mean: Tensor
    var: Tensor
    entropy: Tensor


def probability_moments(mean: Tensor, var: Tensor, *, num_nodes: int = 32) -> ProbabilityMoments:
    """Return E p, Var p and E H(p) of p = σ(f), f ~ N(mean, var), by Gauss-Hermite quadrature; any shape.

    With 32 nodes the error of E p is 1e-7 at a variance of 4, 1e-5 at 8 and 2e-4 at 16; with 64 nodes 5e-6 at 16.
    """
    nodes_N, weights_N = _gauss_hermite(num_nodes, mean.device)
    probs_N = torch.sigmoid(mean.double()[..., None] + var.double().sqrt()[..., None] * nodes_N)
    prob = probs_N @ weights_N
    return ProbabilityMoments(
        mean=prob,
        var=(probs_N - prob[..., None]) ** 2 @ weights_N,  # from the mean, so that small variances keep their digits
        entropy=binary_entropy(probs_N) @ weights_N,
    )


def mean_field(mean: Tensor, var: Tensor, *, factor: float = MEAN_FIELD_FACTOR) -> Tensor:
    """Return σ(m / √(1 + λv)) ≈ E σ(f) for f ~ N(m, v), λ = `factor` (Lu et al. 2020); any shape, float64."""
    return torch.sigmoid(mean.double() / torch.sqrt(1.0 + factor * var.double()))


@lru_cache(maxsize=8)
def _gauss_hermite(num_nodes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    with torch.inference_mode(False):  # the cached tensors outlive the first call
        return (
            torch.from_numpy(nodes).to(device, non_blocking=True),
            torch.from_numpy(weights / math.sqrt(2 * math.pi)).to(device, non_blocking=True),
        )
