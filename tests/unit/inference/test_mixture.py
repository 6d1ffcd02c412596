from __future__ import annotations

import pytest
import torch

from icalib.inference.moments import Moments, mixture_moments, sample_moments

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


@pytest.mark.parametrize("num_gaussians", [1, 6])
def test_limit_gaussians_without_variance_are_passes(num_gaussians: int) -> None:
    mean_SB = 9 * torch.randn(num_gaussians, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found, drawn = mixture_moments(mean_SB, torch.zeros_like(mean_SB)), monte_carlo(mean_SB, 0 * mean_SB, 1)
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name), getattr(drawn, name), rtol=1e-10, atol=1e-12)
