from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from icalib.inference.laplace import RIDGES, best_ridge, information, log_evidence, response


def simulated(num: int, num_features: int, ridge: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features of unit norm on average, coefficients from the prior, and labels."""
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(num, num_features, generator=generator, dtype=torch.float64) / num_features**0.5
    beta = torch.randn(num_features, generator=generator, dtype=torch.float64) / ridge**0.5
    return phi, beta, (torch.rand(num, generator=generator) < torch.sigmoid(phi @ beta)).long()


def mode(phi: Tensor, labels: Tensor, ridge: float) -> Tensor:
    """The most probable coefficients, by Newton's method."""
    beta = torch.zeros(phi.shape[1], dtype=torch.float64)
    for _ in range(30):
        prob = torch.sigmoid(phi @ beta)
        gradient = phi.T @ (labels - prob) - ridge * beta
        hessian = phi.T @ (phi * (prob * (1 - prob))[:, None]) + ridge * torch.eye(len(beta))
        beta = beta + torch.linalg.solve(hessian, gradient)
    return beta


def chosen(phi: Tensor, beta: Tensor, labels: Tensor) -> float:
    logits = phi @ beta
    return best_ridge(information(phi, logits, "logistic"), response(phi, logits, 0 * logits, labels))


@pytest.mark.parametrize("ridge", [0.03, 0.3])
def test_the_chosen_ridge_is_near_the_true_prior_precision_also_away_from_the_mode(ridge: float) -> None:
    """Within a factor of 2 on average, from the coefficients that an ordinary training finds."""
    found = []
    for seed in range(6):
        phi, beta, labels = simulated(1_500, 40, ridge, seed)
        at_mode = chosen(phi, mode(phi, labels, 0.1), labels)
        found.append(np.log(at_mode / ridge))
        assert 0.5 < chosen(phi, beta, labels) / at_mode < 2
    assert abs(np.mean(found)) < np.log(2)


def test_one_coefficients_evidence_is_the_integral() -> None:
    """Against quadrature of likelihood times prior, at the mode of a flat prior."""
    phi, _, labels = simulated(400, 1, 0.5, 3)
    beta = mode(phi, labels, 1e-9)
    logits = phi @ beta
    found = log_evidence(information(phi, logits, "logistic"), response(phi, logits, 0 * logits, labels))

    def integral(ridge: float) -> float:
        def density(value: float) -> float:
            z = phi[:, 0].numpy() * value
            loglik = float((labels.numpy() * z - np.logaddexp(0, z)).sum())
            return float(np.exp(loglik - best)) * float(np.sqrt(ridge / (2 * np.pi)) * np.exp(-ridge * value**2 / 2))

        z = logits.numpy()
        best = float((labels.numpy() * z - np.logaddexp(0, z)).sum())
        centre = float(beta[0])
        return float(np.log(quad(density, centre - 2, centre + 2, epsabs=1e-14, limit=200)[0]))

    rows = [30, 40, 50]
    golden = np.array([integral(float(RIDGES[row])) for row in rows])
    difference = found[rows].numpy() - golden
    np.testing.assert_allclose(difference, difference[0], atol=0.02)  # up to a constant
