from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icalib.inference.mixture import mixture_moments
from icalib.inference.mutual_information import Moments, RunningMoments, binary_entropy

NAMES = ("prob_mean", "prob_var", "logit_mean", "logit_var", "mutual_information")


def monte_carlo(mean_SB: torch.Tensor, var_SB: torch.Tensor, num: int) -> Moments:
    generator = torch.Generator().manual_seed(0)
    running = RunningMoments()
    for _ in range(num):
        noise_SB = torch.randn(mean_SB.shape, generator=generator, dtype=torch.float64)
        for logits_B in mean_SB + var_SB.sqrt() * noise_SB:
            running.add(logits_B)
    return running.result()


def test_moments_are_those_of_many_draws() -> None:
    generator = torch.Generator().manual_seed(1)
    mean_SB = torch.randn(3, 5, generator=generator, dtype=torch.float64) * 2
    var_SB = torch.rand(3, 5, generator=generator, dtype=torch.float64) * 4
    found, drawn = mixture_moments(mean_SB, var_SB), monte_carlo(mean_SB, var_SB, 2000)
    for name in NAMES:
        atol = 0.1 if "logit" in name else 8e-3
        torch.testing.assert_close(getattr(found, name), getattr(drawn, name), atol=atol, rtol=0.05)
    assert found.num_passes == 1


def test_gaussians_without_variance_are_passes() -> None:
    generator = torch.Generator().manual_seed(2)
    mean_SB = torch.randn(6, 4, generator=generator, dtype=torch.float64) * 3
    found, drawn = mixture_moments(mean_SB, torch.zeros_like(mean_SB)), monte_carlo(mean_SB, 0 * mean_SB, 1)
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name), getattr(drawn, name), rtol=1e-10, atol=1e-12)


@given(st.floats(-30, 30))
def test_a_certain_logit_shares_no_information(mean: float) -> None:
    found = mixture_moments(torch.tensor([[mean]]), torch.zeros(1, 1))
    assert found.mutual_information.item() == pytest.approx(0.0, abs=1e-14)
    assert found.prob_var.item() == pytest.approx(0.0, abs=1e-25)


def test_an_unbounded_logit_shares_ln_2() -> None:
    found = mixture_moments(torch.zeros(1, 1), torch.full((1, 1), 1e12))
    assert found.mutual_information.item() == pytest.approx(math.log(2), abs=1e-9)
    assert found.prob_mean.item() == pytest.approx(0.5)
    assert found.prob_var.item() == pytest.approx(0.25, abs=1e-9)


@given(st.lists(st.tuples(st.floats(-20, 20), st.floats(0, 50)), min_size=1, max_size=5))
def test_information_is_between_zero_and_the_entropy_of_the_mean(gaussians: list[tuple[float, float]]) -> None:
    mean_SB, var_SB = torch.tensor(gaussians, dtype=torch.float64).T[:, :, None]
    found = mixture_moments(mean_SB, var_SB)
    assert 0 <= found.mutual_information.item() <= binary_entropy(found.prob_mean).item() + 1e-12
