from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from icalib.inference.laplace import (
    RIDGES,
    best_ridge,
    information,
    log_evidence,
    logit_variance,
    precision_factor,
    random_features,
    response,
)

NUM_FEATURES = 6


def made(num: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(num, NUM_FEATURES, generator=generator, dtype=torch.float64)
    logits = phi @ torch.randn(NUM_FEATURES, generator=generator, dtype=torch.float64)
    return phi, logits, (torch.rand(num, generator=generator) < torch.sigmoid(logits)).long()


def variance(information_LL: Tensor, phi: Tensor, ridge: float = 1.0) -> Tensor:
    return logit_variance(precision_factor(information_LL, ridge=ridge)[0], phi)


def test_at_the_mode_the_precision_is_the_hessian_of_the_log_posterior() -> None:
    phi, _, labels = made(80)
    # scikit-learn's C = 1 is the prior β ~ N(0, I)
    mode = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(phi.numpy(), labels.numpy()).coef_[0]

    def objective(beta: Tensor) -> Tensor:
        losses = torch.nn.functional.binary_cross_entropy_with_logits(phi @ beta, labels.double(), reduction="sum")
        return losses + 0.5 * beta @ beta

    beta = torch.from_numpy(mode)
    gradient = jacobian(objective, beta)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-4, rtol=0)
    covariance = torch.linalg.inv(hessian(objective, beta))
    test, *_ = made(7, seed=1)
    found = variance(information(phi, phi @ beta, "logistic"), test)
    torch.testing.assert_close(found, torch.einsum("bl,lm,bm->b", test, covariance, test))


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


WIDTH = 96


def draws(num_features: int, length_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    frequencies = torch.randn(num_features, WIDTH, generator=generator) / length_scale
    return frequencies, 2 * math.pi * torch.rand(num_features, generator=generator)


def normed_rows() -> torch.Tensor:
    """Rows at cosines from 1 to about 0, of squared length D as LayerNorm leaves them."""
    generator = torch.Generator().manual_seed(1)
    shared, own = torch.randn(1, WIDTH, generator=generator), torch.randn(12, WIDTH, generator=generator)
    return torch.nn.functional.layer_norm(shared + torch.linspace(0, 4, 12)[:, None] * own, [WIDTH])


@pytest.mark.parametrize("length_scale", [math.sqrt(WIDTH / 2), 2 * math.sqrt(WIDTH)])
def test_products_are_the_rbf_kernel(length_scale: float) -> None:
    x = normed_rows()
    phi = random_features(x, *draws(2048, length_scale))
    kernel = RBF(length_scale)(x.numpy())
    errors = (phi @ phi.T).numpy() - kernel
    assert np.sqrt((errors**2).mean()) < 0.02
    assert np.abs(errors).max() < 0.06
