"""The prior precision of a logistic model on fixed features that explains its labels best.

f = m + φᵀβ, β ~ N(0, I/τ). Around coefficients β̂, from any training, the log-likelihood is quadratic: its gradient is
g = Σ (y − p)φ and its Hessian −H, H = Σ p(1 − p)φφᵀ. With the response r = g + Hβ̂ its integral over the prior is

    ln p(y | τ) = ½ Σᵢ [ln τ − ln(λᵢ + τ) + rᵢ² / (λᵢ + τ)] + terms without τ,

λ being the eigenvalues of H and r in the basis of its eigenvectors (Laplace's approximation of the evidence, MacKay
1992). One decomposition serves every τ. Directions without information, λᵢ = rᵢ = 0, say nothing about τ, wherever β̂
started in them; and β̂ needn't be the mode, since g corrects it by a Newton step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RIDGES = torch.logspace(-4, 4, 81, dtype=torch.float64)
"""The grid of τ, [81]."""


class Spectrum(NamedTuple):
    """Eigenvalues λ of the information [L], ascending and at least 0, and the response in their basis [L]."""

    values_L: Tensor
    response_L: Tensor


def response(phi_BL: Tensor, logits_B: Tensor, mean_B: Tensor, labels_B: Tensor) -> Tensor:
    """Return r = Σ [(y − p) + w φᵀβ] φ of some pairs, [L]; φᵀβ are the logits without the mean function's."""
    prob_B = torch.sigmoid(logits_B.double())
    by_features_B = logits_B.double() - mean_B.double()
    return phi_BL.double().T @ (labels_B.double() - prob_B + prob_B * (1 - prob_B) * by_features_B)


def spectrum(information_LL: Tensor, response_L: Tensor) -> Spectrum:
    """Return what the evidence depends on."""
    values_L, vectors_LL = torch.linalg.eigh(information_LL.double())
    return Spectrum(values_L.clamp(min=0), vectors_LL.T @ response_L.double())


def log_evidence(found: Spectrum, ridges_R: Tensor) -> Tensor:
    """Return ln p(y | τ) up to a constant, [R]."""
    values_L, response_L = found
    precision_RL = values_L + ridges_R[:, None]
    terms_RL = torch.log(ridges_R)[:, None] - torch.log(precision_RL) + response_L**2 / precision_RL
    return terms_RL.sum(1) / 2


def best_ridge(found: Spectrum) -> float:
    """Return the τ of the grid with the largest evidence."""
    ridges_R = RIDGES.to(found.values_L.device)
    return float(ridges_R[log_evidence(found, ridges_R).argmax()])
