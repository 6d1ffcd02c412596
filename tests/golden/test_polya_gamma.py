"""Pólya–Gamma draws beside the polyagamma package, and the head's inference beside scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.chains import sample_chains
from polyagamma import polyagamma_cdf
from scipy import stats
from scipy.special import expit, roots_hermite
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, Matern

from icalib.heads.polya_gamma import KernelName, PolyaGammaHead
from icalib.inference import polya_gamma
from icalib.inference.gibbs import ChainProblem, condition

KERNEL = ConstantKernel(8.0, "fixed") * RBF(1.0, "fixed")


def draws(c: float, method: polya_gamma.Method, count: int, seed: int) -> np.ndarray:
    tilts = torch.full((count,), c, dtype=torch.float64)
    return polya_gamma.sample(tilts, generator=torch.Generator().manual_seed(seed), method=method).numpy()


@pytest.mark.parametrize("method", ["exact", "series"])
@pytest.mark.parametrize("c", [0.0, 0.5, 2.0, 3.1, 3.2, 6.0, 12.0, 40.0, 100.0, 1000.0])
def test_draws_follow_polyagammas_distribution(c: float, method: polya_gamma.Method) -> None:
    sample = draws(c, method, 20_000, seed=1)
    assert stats.kstest(sample, lambda x: polyagamma_cdf(x, 1, c)).pvalue > 0.001


@pytest.mark.parametrize(
    ("name", "kernel"), [("rbf", RBF(0.7)), ("matern", Matern(0.7, nu=2.5)), ("linear", DotProduct(0.0))]
)
def test_kernels_are_scikit_learns(name: KernelName, kernel: Kernel) -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    ours = PolyaGammaHead.Config(kernel=name, length_scale=0.7).build(width=3)
    inner_product = 0.7**-2 if name == "linear" else 1.0
    x_t, z_t = torch.from_numpy(x), torch.from_numpy(z)
    np.testing.assert_allclose(ours.kernel(x_t, z_t).numpy(), 8 * inner_product * kernel(x, z), rtol=1e-6)
    np.testing.assert_allclose(ours.prior_variance(x_t).numpy(), 8 * inner_product * kernel.diag(x), rtol=1e-6)


def test_the_gradient_of_a_point_that_occurs_twice_is_finite() -> None:
    x_AD = torch.ones(2, 3, requires_grad=True)
    for name in ("rbf", "matern", "linear"):
        PolyaGammaHead.Config(kernel=name, length_scale=0.7).build(width=3).kernel(x_AD, x_AD).sum().backward()
    assert torch.isfinite(x_AD.grad).all()


def test_limit_equal_precisions_are_gaussian_process_regression_on_plus_minus_two() -> None:
    """ω = ¼ everywhere: pseudo-targets κ/ω = ±2 with noise 1/ω = 4."""
    rng = np.random.default_rng(2)
    x, new = rng.normal(size=(15, 2)), rng.normal(size=(6, 2))
    y = (x[:, 0] > 0).astype(float)
    regressor = GaussianProcessRegressor(KERNEL, alpha=4.0, optimizer=None).fit(x, 4 * y - 2)
    mean, deviation = regressor.predict(new, return_std=True)
    problem = ChainProblem(torch.from_numpy(KERNEL(x)), torch.zeros(15).double(), torch.from_numpy(y))
    cross, prior_var = torch.from_numpy(KERNEL(new, x)), torch.full((6,), 8.0).double()
    conditional = condition(problem, torch.full((1, 15), 0.25).double())
    ours_mean, ours_var = conditional.predict(cross, prior_var, torch.zeros(6).double())
    np.testing.assert_allclose(ours_mean[0].numpy(), mean, atol=1e-10)
    np.testing.assert_allclose(ours_var[0].numpy(), deviation**2, atol=1e-10)


def test_probabilities_lean_as_laplaces_approximation_does_and_further() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 1)) * 2
    y = (x[:, 0] + rng.normal(size=40) > 0).astype(float)
    new = np.array([[-3.0], [-1.5], [1.5], [3.0]])
    laplace = GaussianProcessClassifier(KERNEL, optimizer=None).fit(x, y).predict_proba(new)[:, 1]
    problem = ChainProblem(torch.from_numpy(KERNEL(x)), torch.zeros(40).double(), torch.from_numpy(y))
    chains = sample_chains(problem, num_chains=30, num_steps=15, seed=1)
    mean, var = condition(problem, chains.omega_SN).predict(
        torch.from_numpy(KERNEL(new, x)), torch.full((4,), 8.0).double(), torch.zeros(4).double()
    )
    nodes, weights = roots_hermite(32)
    logits = mean.numpy()[..., None] + np.sqrt(2 * var.numpy())[..., None] * nodes
    prob = (expit(logits) @ weights / np.sqrt(np.pi)).mean(0)
    assert ((prob > 0.5) == (laplace > 0.5)).all()
    assert (np.abs(prob - 0.5) > np.abs(laplace - 0.5) - 0.01).all()
    np.testing.assert_allclose(prob, laplace, atol=0.1)
