"""Pólya–Gamma variables PG(1, c): exact and series samplers, and the mean.

PG(1, c) has density proportional to e^{−c²x/2} times that of PG(1, 0). Given such a variable the logistic likelihood is
Gaussian (Polson, Scott & Windle, "Bayesian inference for logistic models using Pólya–Gamma latent variables", 2013).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from icalib.inference.cholesky import NumericalError

Method = Literal["exact", "series"]

# Where the two pieces of the proposal meet: 0.64 makes the acceptance rate the highest (Polson et al. 2013, §4.1).
_CUT = 0.64
_SMALL = 0.05  # below, the closed form of the mean cancels and its Taylor series is exact in float64

Proposal = Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]]
"""From tilts z [n]: proposals [n], and which of them are accepted [n]."""


@torch.no_grad()
def sample(c: Tensor, *, generator: torch.Generator, method: Method = "exact", num_terms: int = 64) -> Tensor:
    """Draw from PG(1, c) for each element of `c`, with its shape, dtype and device; the sign of c doesn't matter.

    Draws are float64 on the generator's device: a CPU generator gives the same ones for any device. Splitting a call in
    two changes them. "exact" is Devroye's rejection sampler; "series" sums `num_terms` gamma variables where |c| is not
    above their number, and is exact elsewhere.
    """
    tilts = c.detach().to(generator.device, torch.float64).reshape(-1).abs()
    if not tilts.isfinite().all():
        raise NumericalError(
            f"PG(1, c) was asked for with {int((~tilts.isfinite()).sum())} of {tilts.numel()} values of c not finite: "
            "the logits they come from have diverged. Lower the learning rate."
        )
    # 64 terms leave out 1/600 of the variance at |c| = 64, but 1/25 at 200 and half of it at 1000.
    close = tilts <= num_terms if method == "series" else torch.zeros_like(tilts, dtype=torch.bool)
    draws = torch.empty_like(tilts)
    draws[close] = _series(tilts[close], generator, num_terms)
    draws[~close] = _exact(tilts[~close], generator)
    return draws.reshape(c.shape).to(c)


def mean(c: Tensor) -> Tensor:
    """Return E[ω] = tanh(c/2) / (2c) for ω ~ PG(1, c), which is ¼ at 0."""
    c64 = c.double()
    square, away = c64**2, torch.where(c64.abs() < _SMALL, 1.0, c64)
    taylor = 1 / 4 - square / 48 + square**2 / 480 - 17 * square**3 / 80640
    return torch.where(c64.abs() < _SMALL, taylor, torch.tanh(away / 2) / (2 * away)).to(c)


def _exact(c: Tensor, generator: torch.Generator) -> Tensor:
    """Draw X/4 with X ~ J*(1, c/2), the tilted Jacobi variable (Polson et al. 2013, §4)."""
    return _until_accepted(_jacobi, c / 2, generator) / 4


def _series(c: Tensor, generator: torch.Generator, num_terms: int) -> Tensor:
    """Draw ω = Σ_k g_k / d_k, g_k ~ Exp(1), d_k = 2π²((k − ½)² + c²/4π²), with the tail of the sum at its mean.

    Without the tail's mean even 100 terms are visibly too small (Polson et al. 2013, Eq. 2).
    """
    k = torch.arange(1, num_terms + 1, dtype=torch.float64, device=c.device)
    rates = 2 * math.pi**2 * (k - 0.5) ** 2 + c[:, None] ** 2 / 2
    return mean(c) + ((_exponential(rates, generator) - 1) / rates).sum(-1)


def _until_accepted(proposal: Proposal, z: Tensor, generator: torch.Generator) -> Tensor:
    draws = torch.empty_like(z)
    waiting = torch.arange(len(z), device=z.device)
    while len(waiting):
        proposed, accepted = proposal(z[waiting], generator)
        draws[waiting[accepted]] = proposed[accepted]
        waiting = waiting[~accepted]
    return draws


def _jacobi(z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Propose X from an exponential right of the cut and a truncated inverse Gaussian left of it; Devroye's series
    decides. 1.0008 proposals per draw at worst."""
    right = _uniform(z, generator) < _right_mass(z)
    x = _CUT + _exponential(z, generator) / (math.pi**2 / 8 + z**2 / 2)
    x[~right] = _truncated_inverse_gaussian(z[~right], generator)
    return x, _series_accepts(x, _uniform(z, generator))


def _right_mass(z: Tensor) -> Tensor:
    """Return the fraction of the proposal's mass right of the cut.

    The masses are those of Polson et al. (2013, §4.1), divided by e^{−tz²/2}: where erfcx overflows, it is 0.
    """
    right = math.pi / (math.pi**2 / 4 + z**2) * math.exp(-(math.pi**2) * _CUT / 8)
    scaled = [torch.special.erfcx((1 + sign * _CUT * z) / math.sqrt(2 * _CUT)) for sign in (-1, 1)]
    left = math.exp(-1 / (2 * _CUT)) * (scaled[0] + scaled[1])
    return right / (right + left)


def _series_accepts(x: Tensor, uniform: Tensor) -> Tensor:
    """Return whether U a₀(x) is below the alternating series Σ (−1)ⁿ aₙ(x).

    Partial sums approach the limit from both sides, so the fourth decides wherever an earlier one would have; the
    remainder is below e^{−60} a₀. The tilt cancels.
    """
    rate = torch.where(x <= _CUT, 2 / x, math.pi**2 * x / 2)
    return uniform <= 1 - 3 * torch.exp(-2 * rate) + 5 * torch.exp(-6 * rate) - 7 * torch.exp(-12 * rate)


def _truncated_inverse_gaussian(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw X ~ IG(mean 1/z, shape 1) given X ≤ cut."""
    x, small = torch.empty_like(z), z < 1 / _CUT
    x[small] = _until_accepted(_tilted_levy, z[small], generator)
    x[~small] = _until_accepted(_inverse_gaussian, z[~small], generator)
    return x


def _tilted_levy(z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Propose from the untilted law (z = 0) below the cut, by two exponentials; rejection tilts it (means above it)."""
    e, e_bound, e_tilt = (_exponential(z, generator) for _ in range(3))
    x = _CUT / (1 + _CUT * e) ** 2
    return x, (e**2 <= 2 * e_bound / _CUT) & (z**2 * x / 2 <= e_tilt)


def _inverse_gaussian(z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Propose from the whole law; rejection cuts it (Michael, Schucany & Haas 1976), for means below the cut."""
    mu = 1 / z
    a = mu * torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device) ** 2 / 2
    x = mu / (1 + a + torch.sqrt(a * (2 + a)))  # the smaller root, in a form that doesn't cancel
    x = torch.where(_uniform(z, generator) * (mu + x) <= mu, x, mu**2 / x)
    return x, x <= _CUT


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _exponential(like: Tensor, generator: torch.Generator) -> Tensor:
    return -torch.log1p(-_uniform(like, generator))  # `exponential_` takes three times as long on a CPU
