from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from icalib.inference import polya_gamma
from icalib.inference.cholesky import NumericalError

METHODS: list[polya_gamma.Method] = ["exact", "series"]


def draw(c: Tensor, method: polya_gamma.Method = "exact", seed: int = 1) -> Tensor:
    return polya_gamma.sample(c, generator=torch.Generator().manual_seed(seed), method=method)


@pytest.mark.parametrize(
    ("c", "mean"),
    [(0.0, 0.25), (1.0, 0.23105858), (2.0, 0.19039854), (5.0, 0.09866143), (10.0, 0.04999546), (50.0, 0.01)],
)
def test_the_mean_matches_tabled_values(c: float, mean: float) -> None:
    for sign in (1, -1):
        assert float(polya_gamma.mean(torch.tensor(sign * c, dtype=torch.float64))) == pytest.approx(mean, rel=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_extreme_tilts_give_finite_positive_draws_and_infinite_ones_are_refused(method: polya_gamma.Method) -> None:
    draws = draw(torch.tensor([0.0, 1e-30, 1e3, -1e3, 1e8]).repeat(1000), method)
    assert draws.isfinite().all()
    assert (draws > 0).all()
    assert draws[2::5].mean() == pytest.approx(5e-4, rel=6e-3)
    for bad in (math.nan, math.inf):
        with pytest.raises(NumericalError, match="1 of 3 values"):
            draw(torch.tensor([0.0, bad, 1.0]), method)


@pytest.mark.parametrize("method", METHODS)
def test_draws_depend_on_the_generator_and_the_size_of_the_tilts_alone(method: polya_gamma.Method) -> None:
    tilts = torch.randn(100) * 5
    first = draw(tilts, method)
    before = torch.get_rng_state()
    assert torch.equal(draw(-tilts, method), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(draw(tilts, method, seed=2), first)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", METHODS)
def test_a_cpu_generator_draws_the_same_for_every_device(method: polya_gamma.Method) -> None:
    tilts = torch.linspace(0, 20, 500)
    assert torch.equal(draw(tilts.cuda(), method).cpu(), draw(tilts, method))
