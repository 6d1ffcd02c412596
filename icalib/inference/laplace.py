"""Random features, and Laplace's approximation of a logistic model on them: f = φᵀβ, β ~ N(0, I/τ).

At the posterior's mode the precision is P = τI + Σᵢ wᵢ φᵢφᵢᵀ with wᵢ = pᵢ(1 − pᵢ), and the variance of a logit is
φᵀP⁻¹φ (SNGP, Liu et al. 2020). The sum is the information H of the pairs. Sums are in float64.

The evidence of τ: around coefficients β̂, from any training, the log-likelihood is quadratic, with the gradient
g = Σ (y − p)φ and the Hessian −H. With the response r = g + Hβ̂ its integral over the prior is

    ln p(y | τ) = ½ Σᵢ [ln τ − ln(λᵢ + τ) + rᵢ² / (λᵢ + τ)] + terms without τ,

λ being the eigenvalues of H and r in the basis of its eigenvectors (MacKay 1992). One decomposition serves every τ.
Directions without information say nothing about τ; and β̂ needn't be the mode, since g corrects it by a Newton step.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from icalib.inference.cholesky import safe_cholesky

Likelihood = Literal["logistic", "gaussian"]

RIDGES = torch.logspace(-4, 4, 81, dtype=torch.float64)  # the grid of τ, [81]
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


def response(phi_BL: Tensor, logits_B: Tensor, mean_B: Tensor, labels_B: Tensor) -> Tensor:
    """Return r = Σ [(y − p) + w φᵀβ] φ of some pairs, [L]; φᵀβ are the logits without the mean function's."""
    prob_B = torch.sigmoid(logits_B.double())
    by_features_B = logits_B.double() - mean_B.double()
    return phi_BL.double().T @ (labels_B.double() - prob_B + prob_B * (1 - prob_B) * by_features_B)


def log_evidence(information_LL: Tensor, response_L: Tensor, ridges_R: Tensor = RIDGES) -> Tensor:
    """Return ln p(y | τ) up to a constant, [R]."""
    values_L, vectors_LL = torch.linalg.eigh(information_LL.double())
    values_L, rotated_L, ridges_R = values_L.clamp(min=0), vectors_LL.T @ response_L.double(), ridges_R.to(values_L)
    precision_RL = values_L + ridges_R[:, None]
    terms_RL = torch.log(ridges_R)[:, None] - torch.log(precision_RL) + rotated_L**2 / precision_RL
    return terms_RL.sum(1) / 2


def best_ridge(information_LL: Tensor, response_L: Tensor) -> float:
    """Return the τ of the grid with the largest evidence."""
    return float(RIDGES[int(log_evidence(information_LL, response_L).argmax())])
