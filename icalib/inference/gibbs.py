"""Gibbs chains for Gaussian-process classification with Pólya–Gamma variables.

f ~ N(μ, K) and y_i ~ Bernoulli(σ(f_i)); with ω_i ~ PG(1, f_i) the conditional f | y, ω is N(m, Σ), Σ = (K⁻¹ + Ω)⁻¹
and m = Σ(K⁻¹μ + κ), κ = y − ½ (Polson, Scott & Windle 2013; PG-DRR Eq. 8 to 11). The algebra goes through
B = I + diag(s) K diag(s), s = √ω, whose eigenvalues are at least 1: nothing divides by ω or inverts K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from icalib.core.seeding import child_seed
from icalib.inference import polya_gamma
from icalib.inference.cholesky import safe_cholesky

CHAINS_PER_BLOCK = 5
NUGGET = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Added to K's diagonal for the prior's factor, as a fraction of it: rounding leaves K of many points singular."""


@dataclass(frozen=True)
class ChainProblem:
    """N labelled points: all that a process needs to run Gibbs chains."""

    kernel_NN: Tensor  # K, without noise
    mean_N: Tensor  # μ, the mean function's logits; zeros in PG-DRR
    labels_N: Tensor  # y, 0 or 1, in K's dtype

    @property
    def kappa_N(self) -> Tensor:
        """κ = y − ½."""
        return self.labels_N - 0.5

    def detach(self) -> ChainProblem:
        """Return the same points without gradients."""
        return ChainProblem(self.kernel_NN.detach(), self.mean_N.detach(), self.labels_N)


class Chains(NamedTuple):
    """Last states of S Gibbs chains."""

    omega_SN: Tensor
    num_jitters: int  # how many times jitter had to be raised


@dataclass(frozen=True)
class Conditional:
    """f | y, ω of S chains. `factor_SNN` is the lower Cholesky factor of B."""

    problem: ChainProblem
    omega_SN: Tensor
    factor_SNN: Tensor
    num_jitters: int

    @cached_property
    def alpha_SN(self) -> Tensor:
        """α = A(κ − ωμ), so that the mean anywhere is μ + kᵀα."""
        return self._weights(self._pull_SN)

    def log_evidence(self) -> Tensor:
        """Return log p(y | ω, X) of each chain [S], f integrated out; finite as ω → 0.

        −N log 2 + κᵀμ − ½μᵀΩμ − Σ log L_ii + ½bᵀKα with b = κ − ωμ.
        """
        mean_N, kappa_N = self.problem.mean_N, self.problem.kappa_N
        log_det = 2 * self.factor_SNN.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        fit = (self._pull_SN * (self.alpha_SN @ self.problem.kernel_NN)).sum(-1)
        constant = kappa_N @ mean_N - len(mean_N) * math.log(2)
        return constant - (self.omega_SN @ mean_N**2 + log_det - fit) / 2

    def draw(self, prior_factor_NN: Tensor, generator: torch.Generator) -> Tensor:
        """Draw f ~ N(m, Σ) [S, N] exactly, by Matheron's rule: a draw of the prior and of the noise, corrected."""
        prior_SN = draw_prior(self.problem, prior_factor_NN, len(self.omega_SN), generator)
        noise_SN = _normal(self.omega_SN, generator)
        gap_SN = self.problem.kappa_N - self.omega_SN * prior_SN - self.omega_SN.sqrt() * noise_SN
        return prior_SN + self._weights(gap_SN) @ self.problem.kernel_NN

    def predict(self, cross_BN: Tensor, prior_var_B: Tensor, mean_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return m* = μ* + k*ᵀα and v* = k** − ‖L⁻¹(s∘k*)‖² of new points' logits, [S, B] each; `cross_BN` is k*."""
        explained_SB = (self._whitener_SNN @ cross_BN.mT).square().sum(1)
        return mean_B + self.alpha_SN @ cross_BN.mT, (prior_var_B - explained_SB).clamp(min=1e-9)

    @cached_property
    def _whitener_SNN(self) -> Tensor:
        """L⁻¹ diag(s), so that each batch to predict costs a product rather than a triangular solve."""
        return torch.linalg.solve_triangular(self.factor_SNN, torch.diag_embed(self.omega_SN.sqrt()), upper=False)

    @property
    def _pull_SN(self) -> Tensor:
        return self.problem.kappa_N - self.omega_SN * self.problem.mean_N

    def _weights(self, b_SN: Tensor) -> Tensor:
        """Return A(b) = b − s∘B⁻¹(s∘(Kb)), which is K⁻¹Σb."""
        root_SN = self.omega_SN.sqrt()
        scaled_SN1 = (root_SN * (b_SN @ self.problem.kernel_NN))[:, :, None]
        return b_SN - root_SN * torch.cholesky_solve(scaled_SN1, self.factor_SNN).squeeze(-1)


def condition(problem: ChainProblem, omega_SN: Tensor) -> Conditional:
    """Return f | y, ω for each chain's ω."""
    root_SN, kernel_NN = omega_SN.sqrt(), problem.kernel_NN
    identity_NN = torch.eye(len(kernel_NN), dtype=kernel_NN.dtype, device=kernel_NN.device)
    b_SNN = identity_NN + root_SN[:, :, None] * kernel_NN * root_SN[:, None, :]
    factor_SNN, num_jitters = safe_cholesky(b_SNN, jitter=NUGGET[kernel_NN.dtype])
    return Conditional(problem, omega_SN, factor_SNN, num_jitters)


def draw_prior(problem: ChainProblem, factor_NN: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
    """Draw f ~ N(μ, LLᵀ) [S, N]."""
    noise_SN = _normal(problem.mean_N.expand(num_draws, -1), generator)
    return problem.mean_N + noise_SN @ factor_NN.mT


@torch.no_grad()
def run_chains(
    problem: ChainProblem,
    *,
    num_chains: int,
    num_steps: int,
    generator: torch.Generator,
    method: polya_gamma.Method = "exact",
) -> Chains:
    """Run all chains side by side from draws of the prior (PG-DRR Alg. 1); ω is drawn `num_steps` times, T ≥ 1.

    Random numbers are drawn on the device of `generator`; the algebra runs on that of `problem`.
    """
    kernel_NN, nugget = problem.kernel_NN, NUGGET[problem.kernel_NN.dtype]
    with_nugget_NN = kernel_NN + torch.diag(nugget * kernel_NN.diagonal())
    prior_factor_NN, num_jitters = safe_cholesky(with_nugget_NN, jitter=10 * nugget)
    f_SN = draw_prior(problem, prior_factor_NN, num_chains, generator)
    omega_SN = polya_gamma.sample(f_SN, generator=generator, method=method)
    for _ in range(num_steps - 1):
        conditional = condition(problem, omega_SN)
        num_jitters += conditional.num_jitters
        f_SN = conditional.draw(prior_factor_NN, generator)
        omega_SN = polya_gamma.sample(f_SN, generator=generator, method=method)
    return Chains(omega_SN, num_jitters)


def num_blocks(num_chains: int) -> int:
    """Return the number of blocks that chains are sampled in."""
    return -(-num_chains // CHAINS_PER_BLOCK)


def sample_block(problem: ChainProblem, block: int, *, num_chains: int, num_steps: int, seed: int) -> Chains:
    """Return a block of the chains; it depends on its arguments only, up to how the kind of device rounds."""
    size = min(CHAINS_PER_BLOCK, num_chains - block * CHAINS_PER_BLOCK)
    generator = torch.Generator().manual_seed(child_seed(seed, "chains", block))
    return run_chains(problem, num_chains=size, num_steps=num_steps, generator=generator)


def join_blocks(blocks: Sequence[Chains]) -> Chains:
    """Join the chains of all blocks, in order."""
    return Chains(torch.cat([block.omega_SN for block in blocks]), sum(block.num_jitters for block in blocks))


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)
