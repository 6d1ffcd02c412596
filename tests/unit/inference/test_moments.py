from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import entropy

from icalib.inference.moments import Moments, mixture_moments, pass_moments, probability_moments, sample_moments

logits_of_passes = st.lists(st.lists(st.floats(-40, 40), min_size=3, max_size=3), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("probs", "expected"),
    [((0.9, 0.9, 0.9, 0.1, 0.1), 0.355), ((0.99, 0.99, 0.99, 0.99, 0.01), 0.453), ((0.95, 0.9, 0.3, 0.8, 0.6), 0.141)],
)
def test_the_two_sided_formula_gives_known_values(probs: tuple[float, ...], expected: float) -> None:
    result = sample_moments(torch.logit(torch.tensor(probs, dtype=torch.float64))[:, None])
    assert result.mutual_information.item() == pytest.approx(expected, abs=5e-4)


def test_limit_identical_passes_share_nothing_and_opposite_ones_ln_2() -> None:
    same = sample_moments(torch.full((4, 1), 2.5).bfloat16())
    assert same.mutual_information.dtype == torch.float64
    assert same.mutual_information.item() == pytest.approx(0.0, abs=1e-14)
    assert same.prob_var.item() == same.logit_var.item() == 0.0
    opposite = sample_moments(torch.tensor([[-800.0], [800.0]]))
    assert opposite.mutual_information.item() == pytest.approx(math.log(2), abs=1e-15)


@given(logits_of_passes)
def test_the_moments_are_those_of_all_passes_at_once(logits: list[list[float]]) -> None:
    logits_SB = np.array(logits)
    probs_SB = 1 / (1 + np.exp(-logits_SB))
    result = sample_moments(torch.from_numpy(logits_SB))
    assert result.num_passes == len(logits)
    np.testing.assert_allclose(result.prob_mean, probs_SB.mean(0), atol=1e-12)
    np.testing.assert_allclose(result.prob_var, probs_SB.var(0), atol=1e-12)
    np.testing.assert_allclose(result.logit_mean, logits_SB.mean(0), atol=1e-11)
    np.testing.assert_allclose(result.logit_var, logits_SB.var(0), rtol=1e-7, atol=1e-9)
    both_SB2 = np.stack([probs_SB, 1 - probs_SB], -1)
    direct = entropy(both_SB2.mean(0), axis=-1) - entropy(both_SB2, axis=-1).mean(0)
    np.testing.assert_allclose(result.mutual_information, direct, atol=1e-9)


def test_tiny_variances_keep_their_digits() -> None:
    logits_S = 30 + 1e-7 * torch.arange(5, dtype=torch.float64)
    assert sample_moments(logits_S[:, None]).logit_var.item() == pytest.approx(2e-14, rel=1e-6)


def test_halves_are_the_even_and_the_odd_samples() -> None:
    torch.manual_seed(0)
    samples = torch.randn(5, 7)
    found = sample_moments(samples).half_information
    assert found is not None
    for half, expected in zip(found, (samples[::2], samples[1::2]), strict=True):
        torch.testing.assert_close(half, sample_moments(expected).mutual_information)
    assert sample_moments(samples[:3]).half_information is None  # one of the halves would have no spread


NAMES = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")


def monte_carlo(mean_SB: torch.Tensor, var_SB: torch.Tensor, num: int) -> Moments:
    generator = torch.Generator().manual_seed(0)
    noise_TSB = torch.randn(num, *mean_SB.shape, generator=generator, dtype=torch.float64)
    return sample_moments((mean_SB + var_SB.sqrt() * noise_TSB).flatten(0, 1))


def test_moments_are_those_of_many_draws() -> None:
    generator = torch.Generator().manual_seed(1)
    mean_SB = torch.randn(3, 5, generator=generator, dtype=torch.float64) * 2
    var_SB = torch.rand(3, 5, generator=generator, dtype=torch.float64) * 4
    found, drawn = mixture_moments(mean_SB, var_SB), monte_carlo(mean_SB, var_SB, 1000)
    for name in NAMES:
        atol = 0.12 if "logit" in name else 0.01
        torch.testing.assert_close(getattr(found, name), getattr(drawn, name), atol=atol, rtol=0.05)
    assert found.num_passes == 1


def test_passes_with_variances_of_their_own_are_a_mixture_and_halves_are_those_of_its_halves() -> None:
    """As where one part has dropout and another a posterior."""
    rng = torch.Generator().manual_seed(1)
    mean_SB, var_SB = torch.randn(5, 3, generator=rng), torch.rand(5, 3, generator=rng)
    found, whole = pass_moments(mean_SB, var_SB), mixture_moments(mean_SB, var_SB)
    assert found.num_passes == 5
    assert found.half_information is not None
    for name in ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information"):
        assert torch.equal(getattr(found, name), getattr(whole, name))
    for half, rows in zip(found.half_information, ([0, 2, 4], [1, 3]), strict=True):
        assert torch.equal(half, mixture_moments(mean_SB[rows], var_SB[rows]).mutual_information)
    assert pass_moments(mean_SB[:3], var_SB[:3]).half_information is None
    certain, passes = pass_moments(mean_SB, torch.zeros(5, 3)), sample_moments(mean_SB)
    assert torch.equal(certain.prob_mean, passes.prob_mean)


@pytest.mark.parametrize("num_gaussians", [1, 6])
def test_limit_gaussians_without_variance_are_passes(num_gaussians: int) -> None:
    mean_SB = 9 * torch.randn(num_gaussians, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found, drawn = mixture_moments(mean_SB, torch.zeros_like(mean_SB)), monte_carlo(mean_SB, 0 * mean_SB, 1)
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name), getattr(drawn, name), rtol=1e-10, atol=1e-12)


MEANS = torch.linspace(-10, 10, 81, dtype=torch.float64)


@pytest.mark.parametrize(("mean", "var"), [(0.0, 1.0), (-2.0, 3.0), (4.0, 0.3)])
def test_all_three_moments_are_the_integrals(mean: float, var: float) -> None:
    def expected(function: object) -> float:
        def integrand(z: float) -> float:
            return function(expit(mean + math.sqrt(var) * z)) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)  # type: ignore[operator]

        return quad(integrand, -12, 12, epsabs=1e-12)[0]

    found = probability_moments(torch.tensor(mean), torch.tensor(var), num_nodes=64)
    first = expected(lambda p: p)
    assert found.mean.item() == pytest.approx(first, abs=1e-9)
    assert found.var.item() == pytest.approx(expected(lambda p: (p - first) ** 2), abs=1e-9)
    assert found.entropy.item() == pytest.approx(expected(lambda p: entropy([p, 1 - p])), abs=1e-8)


def test_small_variances_keep_their_digits_and_none_is_no_integral() -> None:
    found = probability_moments(torch.tensor(0.0), torch.tensor(1e-14, dtype=torch.float64))
    assert found.var.item() == pytest.approx(1e-14 / 16, rel=1e-6)  # Var σ(f) → σ'(0)² v
    found = probability_moments(MEANS, torch.zeros_like(MEANS))
    torch.testing.assert_close(found.mean, torch.sigmoid(MEANS), rtol=1e-12, atol=0)
    assert (found.var.abs() < 1e-25).all()


def test_nodes_first_asked_for_in_inference_mode_serve_outside_it() -> None:
    with torch.inference_mode():
        probability_moments(torch.zeros(1), torch.ones(1), num_nodes=7)
    mean = torch.zeros(1, requires_grad=True)
    probability_moments(mean, torch.ones(1), num_nodes=7).mean.sum().backward()
    assert mean.grad is not None
