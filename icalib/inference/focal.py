"""The inverse of the bias that a focal loss gives probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


def inverse_focal_logits(logits: Tensor, gamma: float) -> Tensor:
    """Return logits of the probability η whose focal-loss minimiser is σ(f); any shape, float64, rising with f.

    The minimiser p of η·L(p, 1) + (1 − η)·L(p, 0) solves η/(1 − η) = h(p)/h(1 − p) with
    h(u) = u / ((1 − u)^γ − γ(1 − u)^(γ−1) u log u) (Charoenphakdee et al. 2021). In logits that is
    (1 + γ)f + log A(−f) − log A(f) with A(f) = 1 − γ e^f log σ(f), which neither over- nor underflows.
    """
    logits = logits.double()
    return (1 + gamma) * logits + _log_excess(-logits, gamma) - _log_excess(logits, gamma)


def _log_excess(logits: Tensor, gamma: float) -> Tensor:
    """Return log A(f); A is between 1 and 1 + γ and reaches its limits, to 1e-15, at |f| = 40."""
    bounded = logits.clamp(-40.0, 40.0)
    return torch.log1p(gamma * bounded.exp() * softplus(-bounded))
