"""Random features, and Laplace's approximation of a logistic model on them: f = φᵀβ, β ~ N(0, I/τ).

At the posterior's mode the precision is P = τI + Σᵢ wᵢ φᵢφᵢᵀ with wᵢ = pᵢ(1 − pᵢ), and the variance of a logit is
φᵀP⁻¹φ (SNGP, Liu et al. 2020). The sum is the information of the pairs, in float64.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from icalib.inference.cholesky import safe_cholesky

Likelihood = Literal["logistic", "gaussian"]

_JITTER = 1e-8


def random_features(x_BD: Tensor, frequencies_LD: Tensor, phases_L: Tensor) -> Tensor:
    """Return φ(x) = √(2/L) cos(Wx + b) [B, L] (Rahimi & Recht 2007, algorithm 1; GPF-BERT Eq. 2).

    With W ~ N(0, 1/ℓ²) and b ~ U(0, 2π), φ(x)ᵀφ(x') is exp(−‖x − x'‖²/2ℓ²) to O(1/√L).
    """
    return math.sqrt(2 / len(phases_L)) * torch.cos(torch.nn.functional.linear(x_BD, frequencies_LD, phases_L))


def information(phi_BL: Tensor, logits_B: Tensor, likelihood: Likelihood) -> Tensor:
    """Return Σ wφφᵀ [L, L] of some pairs: w is p(1 − p) for a logistic likelihood and 1 for a Gaussian one."""
    phi_BL = phi_BL.double()
    if likelihood == "gaussian":
        return phi_BL.T @ phi_BL
    prob_B = torch.sigmoid(logits_B.double())
    return phi_BL.T @ (phi_BL * (prob_B * (1 - prob_B))[:, None])


def precision_factor(information_LL: Tensor, *, ridge: float) -> tuple[Tensor, int]:
    """Return the lower Cholesky factor C of P = τI + Σ wφφᵀ = CCᵀ, τ = `ridge`, and how often jitter was raised."""
    identity = torch.eye(len(information_LL), dtype=information_LL.dtype, device=information_LL.device)
    return safe_cholesky(information_LL + ridge * identity, jitter=_JITTER)


def logit_variance(factor_LL: Tensor, phi_BL: Tensor) -> Tensor:
    """Return Var f = φᵀP⁻¹φ = ‖C⁻¹φ‖² [B]."""
    return torch.linalg.solve_triangular(factor_LL, phi_BL.T, upper=False).square().sum(0)
