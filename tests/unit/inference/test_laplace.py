from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from icalib.inference.laplace import information, logit_variance, precision_factor, random_features

NUM_FEATURES = 6
WIDTH = 96


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


def test_limit_two_logits_with_the_whole_hessian_are_one_logit_with_half_the_ridge() -> None:
    """f = f₁ − f₀ of two classes with β ~ N(0, I) each has the prior variance 2 (GPF-BERT prints a softmax)."""
    phi, logits, _ = made(40)
    data_LL = information(phi, logits, "logistic")
    of_softmax = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)  # its Hessian over p(1 − p)
    precision = torch.kron(of_softmax, data_LL) + torch.eye(2 * NUM_FEATURES, dtype=torch.float64)
    both = torch.cat([phi, -phi], 1)
    expected = (both @ torch.linalg.inv(precision) * both).sum(1)
    torch.testing.assert_close(variance(data_LL, phi, ridge=0.5), expected, rtol=1e-7, atol=1e-9)
