from __future__ import annotations

import math
import pickle

import pytest
import torch
from helpers.chains import sample_chains
from torch import Tensor

from icalib.inference import gibbs, polya_gamma
from icalib.inference.cholesky import NumericalError
from icalib.inference.gibbs import ChainProblem

LOGITS = torch.linspace(-18, 18, 361, dtype=torch.float64)


def rbf(x: Tensor, z: Tensor, output_scale: float = 8.0) -> Tensor:
    return output_scale * torch.exp(-(torch.cdist(x, z) ** 2) / 2)


def made_problem(num_points: int = 6, *, seed: int = 0) -> tuple[Tensor, ChainProblem]:
    """Points in the plane whose first coordinate goes with their label, and a mean function that isn't 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_points, 2, dtype=torch.float64, generator=generator)
    noise = torch.randn(num_points, dtype=torch.float64, generator=generator)
    return x, ChainProblem(rbf(x, x), noise / 2, (x[:, 0] + 0.3 * noise > 0).double())


def made_omega(num_chains: int, num_points: int) -> Tensor:
    tilts = torch.linspace(0, 6, num_chains * num_points, dtype=torch.float64).reshape(num_chains, num_points)
    return polya_gamma.sample(tilts, generator=torch.Generator().manual_seed(5))


def log_joint(problem: ChainProblem) -> Tensor:
    """log p(y, f) of two points on a grid of their logits [G, G]."""
    grid = torch.stack(torch.meshgrid(LOGITS, LOGITS, indexing="ij"), -1)
    prior = torch.distributions.MultivariateNormal(problem.mean_N, problem.kernel_NN).log_prob(grid)
    return prior + torch.nn.functional.logsigmoid(grid * (2 * problem.labels_N - 1)).sum(-1)


def test_mean_and_draws_have_the_conditionals_moments() -> None:
    _, problem = made_problem(3)
    omega = made_omega(1, 3).expand(100_000, -1)
    precision = torch.linalg.inv(problem.kernel_NN) + torch.diag(omega[0])
    covariance = torch.linalg.inv(precision)
    mean = covariance @ (torch.linalg.solve(problem.kernel_NN, problem.mean_N) + problem.labels_N - 0.5)
    conditional = gibbs.condition(problem, omega)
    assert torch.allclose(problem.mean_N + conditional.alpha_SN[0] @ problem.kernel_NN, mean, atol=1e-12)
    draws = conditional.draw(torch.linalg.cholesky(problem.kernel_NN), torch.Generator().manual_seed(2))
    error = covariance.diagonal().sqrt() / math.sqrt(len(draws))
    assert (((draws.mean(0) - mean) / error).abs() < 4).all()
    assert torch.allclose(draws.T.cov(), covariance, atol=0.1)


def test_evidence_is_that_of_gaussian_pseudo_targets() -> None:
    _, problem = made_problem()
    omega, kappa = made_omega(4, 6), problem.labels_N - 0.5
    noisy = problem.kernel_NN + torch.diag_embed(1 / omega)
    gaussian = torch.distributions.MultivariateNormal(problem.mean_N, noisy).log_prob(kappa / omega)
    size = len(kappa)
    completed = (size * math.log(2 * math.pi) - omega.log().sum(-1) + (kappa**2 / omega).sum(-1)) / 2
    expected = gaussian + completed - size * math.log(2)
    assert torch.allclose(gibbs.condition(problem, omega).log_evidence(), expected, atol=1e-12)


def test_limit_evidence_is_finite_without_any_noise_precision_and_a_coin_toss_without_prior_variance() -> None:
    _, problem = made_problem()
    kappa = problem.labels_N - 0.5
    expected = kappa @ problem.mean_N + kappa @ problem.kernel_NN @ kappa / 2 - len(kappa) * math.log(2)
    evidence = gibbs.condition(problem, torch.zeros(1, 6, dtype=torch.float64)).log_evidence()
    assert torch.allclose(evidence, expected)
    tiny = ChainProblem(1e-12 * problem.kernel_NN, torch.zeros(6, dtype=torch.float64), problem.labels_N)
    evidence = gibbs.condition(tiny, made_omega(3, 6)).log_evidence()
    assert torch.allclose(evidence, torch.full_like(evidence, -6 * math.log(2)), atol=1e-9)


def test_cached_prediction_equals_the_direct_formula() -> None:
    """m* = μ* + k*ᵀ(K + Ω⁻¹)⁻¹(z − μ) and v* = k** − k*ᵀ(K + Ω⁻¹)⁻¹k*, with z = κ/ω (PG-DRR Eq. 14)."""
    x, problem = made_problem()
    new = torch.linspace(-3, 3, 8, dtype=torch.float64).reshape(4, 2)
    omega, cross = made_omega(3, 6), rbf(new, x)
    mean, var = gibbs.condition(problem, omega).predict(cross, torch.full((4,), 8.0).double(), torch.arange(4.0))
    for chain, weight in enumerate(omega):
        noisy = problem.kernel_NN + torch.diag(1 / weight)
        gap = (problem.labels_N - 0.5) / weight - problem.mean_N
        expected_mean = torch.arange(4.0) + cross @ torch.linalg.solve(noisy, gap)
        expected_var = 8 - (cross * torch.linalg.solve(noisy, cross.T).T).sum(-1)
        assert torch.allclose(mean[chain], expected_mean, atol=1e-12)
        assert torch.allclose(var[chain], expected_var, atol=1e-12)


@pytest.mark.parametrize("method", ["exact", "series"])
def test_chains_reach_the_posterior_of_a_grid_integral(method: polya_gamma.Method) -> None:
    kernel = torch.tensor([[8.0, 3.0], [3.0, 8.0]], dtype=torch.float64)
    problem = ChainProblem(kernel, torch.tensor([0.3, -0.2]).double(), torch.tensor([1.0, 0.0]).double())
    joint = log_joint(problem)
    weight = joint.flatten().softmax(0).reshape(joint.shape)
    expected = torch.stack([(weight.sum(1) * LOGITS).sum(), (weight.sum(0) * LOGITS).sum()])
    generator = torch.Generator().manual_seed(3)
    chains = gibbs.run_chains(problem, num_chains=4000, num_steps=15, generator=generator, method=method)
    means = problem.mean_N + gibbs.condition(problem, chains.omega_SN).alpha_SN @ problem.kernel_NN
    error = means.std(0) / math.sqrt(len(means))
    assert (((means.mean(0) - expected) / error).abs() < 4).all()


def test_each_step_draws_omega_once_the_first_from_the_prior() -> None:
    _, problem = made_problem()
    found = [
        gibbs.run_chains(problem, num_chains=2, num_steps=steps, generator=torch.Generator().manual_seed(3)).omega_SN
        for steps in (1, 2)
    ]
    generator, nugget = torch.Generator().manual_seed(3), gibbs.NUGGET[torch.float64]
    factor = torch.linalg.cholesky(problem.kernel_NN + nugget * torch.diag(problem.kernel_NN.diagonal()))
    first = polya_gamma.sample(gibbs.draw_prior(problem, factor, 2, generator), generator=generator)
    second = polya_gamma.sample(gibbs.condition(problem, first).draw(factor, generator), generator=generator)
    assert torch.equal(found[0], first)
    assert torch.equal(found[1], second)


def test_the_evidences_gradient_over_chains_is_that_of_the_marginal_likelihood() -> None:
    """Fisher's identity, for the output scale and the mean function; one step would miss both."""
    scale = torch.tensor(8.0, dtype=torch.float64, requires_grad=True)
    shift = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    kernel = scale * torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)
    moving = ChainProblem(kernel, shift + torch.tensor([0.3, -0.2]).double(), torch.ones(2).double())
    exact = torch.autograd.grad(log_joint(moving).flatten().logsumexp(0), [scale, shift], retain_graph=True)
    generator = torch.Generator().manual_seed(4)
    chains = gibbs.run_chains(moving.detach(), num_chains=8000, num_steps=15, generator=generator)
    evidence = gibbs.condition(moving, chains.omega_SN).log_evidence().mean()
    for estimate, expected in zip(torch.autograd.grad(evidence, [scale, shift]), exact, strict=True):
        assert float(estimate) == pytest.approx(float(expected), abs=0.005)


def test_blocks_depend_on_their_arguments_only() -> None:
    _, problem = made_problem()
    asked = {"num_chains": 12, "num_steps": 3, "seed": 8}
    together = sample_chains(problem, **asked)
    assert len(together.omega_SN.unique(dim=0)) == 12
    assert not torch.equal(together.omega_SN, sample_chains(problem, **{**asked, "seed": 9}).omega_SN)
    blocks = {}
    for block in (2, 0, 1):
        torch.manual_seed(block)
        elsewhere = pickle.loads(pickle.dumps(problem))
        blocks[block] = gibbs.sample_block(elsewhere, block, **asked)
    assert gibbs.num_blocks(12) == len(blocks)
    assert torch.equal(gibbs.join_blocks([blocks[block] for block in range(3)]).omega_SN, together.omega_SN)


def test_repeated_points_in_single_precision_need_no_more_than_the_planned_nugget() -> None:
    x, _ = made_problem(64)
    x = x.float().repeat(4, 1)
    problem = ChainProblem(rbf(x, x), torch.zeros(256), (x[:, 0] > 0).float())
    chains = sample_chains(problem, num_chains=5, num_steps=3, seed=1)
    assert chains.num_jitters == 0
    assert chains.omega_SN.isfinite().all()


def test_a_matrix_that_is_not_a_kernel_is_counted_and_then_refused() -> None:
    slightly = torch.tensor([[1.0, 1.001], [1.001, 1.0]])
    labels = torch.tensor([0.0, 1.0])
    asked = {"num_chains": 1, "num_steps": 1, "seed": 1}
    assert sample_chains(ChainProblem(slightly, torch.zeros(2), labels), **asked).num_jitters == 1
    with pytest.raises(NumericalError):
        sample_chains(ChainProblem(torch.full((2, 2), float("nan")), torch.zeros(2), labels), **asked)
