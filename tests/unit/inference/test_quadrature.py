from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import entropy

from icalib.inference.moments import probability_moments

MEANS = torch.linspace(-10, 10, 81, dtype=torch.float64)


def many_nodes(var: float) -> torch.Tensor:
    """E σ(f) by a rule that shares nothing with Gauss-Hermite: trapezoids over ±12 standard deviations."""
    z = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return torch.trapezoid(torch.sigmoid(MEANS[:, None] + math.sqrt(var) * z) * density, z)


@pytest.mark.parametrize(
    ("var", "errors"),
    [
        (1.0, {10: 4e-7, 20: 2e-10, 32: 1e-13}),
        (4.0, {10: 3e-4, 20: 5e-6, 32: 1.3e-7, 64: 9e-11}),
        (8.0, {10: 2.4e-3, 20: 1.3e-4, 32: 1e-5, 64: 6e-8}),
        (16.0, {10: 1e-2, 20: 1.4e-3, 32: 2.2e-4, 64: 5.5e-6}),
        (64.0, {10: 5.3e-2, 20: 2e-2, 32: 8e-3, 64: 1.3e-3}),
    ],
)
def test_the_error_falls_with_the_nodes_as_is_known(var: float, errors: dict[int, float]) -> None:
    exact = many_nodes(var)
    for num_nodes, error in errors.items():
        found = probability_moments(MEANS, torch.full_like(MEANS, var), num_nodes=num_nodes).mean
        assert 0.5 * error < (found - exact).abs().max() < 1.2 * error


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
