"""A Gaussian-process head whose logistic likelihood is made Gaussian by Pólya–Gamma variables (PG-DRR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from icalib.core.combination import OWN_OBJECTIVE, POSTERIOR, Capabilities
from icalib.core.errors import PosteriorError
from icalib.heads.head import LogitPosterior, PairLoss, PosteriorHead, PosteriorTask, Support
from icalib.inference import gibbs
from icalib.inference.gibbs import ChainProblem, Chains, Conditional

KernelName = Literal["rbf", "matern", "linear"]


@final
class PolyaGammaHead(PosteriorHead):
    """f ~ GP(μ, σ²k) on projected features, P(right) = σ(f); training maximises the evidence of each batch.

    The gradient of log p(y|X) is that of log p(y|ω,X) averaged over ω ~ p(ω|y,X) (Fisher's identity), so chains run
    without gradients and f never appears in the loss. At prediction the logit's posterior is an equal-weight mixture
    over chains, given a support set of training pairs (PG-DRR Eq. 14).

    The projection starts as the identity, so that the kernel starts from the encoder's similarities: few labels don't
    suffice to recover them from a random projection.
    """

    class Config(PosteriorHead.Config):
        """Settings of a Pólya–Gamma head; defaults are those of PG-DRR where the paper states them."""

        joint_objective: ClassVar[bool] = True

        kernel: KernelName = "rbf"
        """RBF, Matérn 5/2, or the inner product, which makes the head Bayesian logistic regression."""
        length_scale: float = Field(default=1.0, gt=0)
        """ℓ, in units of distance between features, which are at most 2 apart."""
        output_scale: float = Field(default=8.0, gt=0)
        """σ², the prior variance of a logit; above 16, use more than 32 quadrature nodes for predictions."""
        num_chains: int = Field(default=30, ge=1)
        """Gibbs chains, in training and for the posterior."""
        num_steps: int = Field(default=10, ge=1)
        """Gibbs steps of each chain for a training batch."""
        prediction_steps: int = Field(default=20, ge=1)
        """Gibbs steps of each chain for the posterior; with fewer it has not converged and looks under-confident."""
        support: Support = Support()
        """The pairs that the posterior is computed from. Prediction time grows with the square of their number."""

        @override
        def provides(self) -> Capabilities:
            return {OWN_OBJECTIVE, POSTERIOR}

        @property
        @override
        def pairs_for_posterior(self) -> Support | None:
            return self.support

    def __init__(self, config: Config, *, width: int) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Linear(width, width)
        nn.init.eye_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.num_jitters = 0
        self._observed: list[dict[str, Tensor]] = []
        self._state: dict[str, Tensor] = {}
        self._conditional: Conditional | None = None

    @override
    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        return self.posterior(features_BD, mean_B).mean_SB.mean(0)

    @override
    def losses(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor, loss: PairLoss) -> Tensor:
        """Return −log p(y|ω, X) / B for each pair [B], with the batch as the data set."""
        seed, size = int(torch.randint(2**62, ())), len(labels_B)
        return (self.joint_loss(self.represent(features_BD, mean_B), labels_B, seed=seed) / size).expand(size)

    @override
    def represent(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Return projected features and mean of each pair; [B, D + 1]."""
        if self.training:
            self.forget()
        with torch.autocast(features_BD.device.type, enabled=False):
            projected_BD = self._project(features_BD)
            return torch.cat([projected_BD, mean_B.to(projected_BD)[:, None]], 1)

    @override
    def joint_loss(self, representations_BR: Tensor, labels_B: Tensor, *, seed: int) -> Tensor:
        projected_BD, mean_B = representations_BR[:, :-1], representations_BR[:, -1]
        with torch.autocast(representations_BR.device.type, enabled=False):
            kernel_BB = self.kernel(projected_BD, projected_BD)
            problem = ChainProblem(kernel_BB, mean_B, labels_B.to(kernel_BB))
            chains = gibbs.run_chains(
                problem.detach(),
                num_chains=self.config.num_chains,
                num_steps=self.config.num_steps,
                generator=torch.Generator().manual_seed(seed),
                method="series",  # 64 terms, faster than the exact draws of the posterior
            )
            conditional = gibbs.condition(problem, chains.omega_SN)
            evidence = conditional.log_evidence().mean()
        self.num_jitters += chains.num_jitters + conditional.num_jitters
        return -evidence

    @override
    def touch(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        return self.represent(features_BD, mean_B).sum()

    @override
    @torch.no_grad()
    def observe(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor) -> None:
        with torch.autocast(features_BD.device.type, enabled=False):
            projected_BD = self._project(features_BD)
        dtype = projected_BD.dtype
        self._observed.append(_on_cpu(features=projected_BD, mean=mean_B.to(dtype), labels=labels_B.to(dtype)))

    @override
    def observations(self) -> dict[str, Tensor]:
        like = self.projection.weight  # its shape is unknown under ZeRO 3, where another worker may hold it
        nothing = {"features": like.new_empty(0, self.projection.in_features), "mean": like.new_empty(0)}
        return _joined([_on_cpu(**nothing, labels=nothing["mean"]), *self._observed])

    @override
    @torch.no_grad()
    def collect(self, observations: Sequence[dict[str, Tensor]]) -> None:
        joined = {name: part.to(self.projection.weight.device) for name, part in _joined(observations).items()}
        self.forget()
        self._state = {**joined, "kernel": self.kernel(joined["features"], joined["features"])}

    @override
    def posterior_tasks(self, *, seed: int) -> Sequence[PosteriorTask]:
        state, config = self._collected(), self.config
        settings = {"num_chains": config.num_chains, "num_steps": config.prediction_steps, "seed": seed}
        blocks = range(gibbs.num_blocks(config.num_chains))
        return [partial(_sample_block, state, block, **settings) for block in blocks]

    @override
    def take_results(self, results: Sequence[Chains]) -> None:
        chains = gibbs.join_blocks(results)
        self._state["omega"] = chains.omega_SN.to(self._state["kernel"])
        self._conditional = None
        self.num_jitters += chains.num_jitters

    @override
    @torch.no_grad()
    def posterior(self, features_BD: Tensor, mean_B: Tensor) -> LogitPosterior:
        with torch.autocast(features_BD.device.type, enabled=False):
            projected_BD = self._project(features_BD)
            conditional = self._conditional_on(projected_BD.device)
            cross_BN = self.kernel(projected_BD, self._state["features"].to(projected_BD))
            prior_var_B = self.prior_variance(projected_BD)
            return LogitPosterior(*conditional.predict(cross_BN, prior_var_B, mean_B.to(projected_BD)))

    @override
    def posterior_state(self) -> dict[str, Tensor]:
        """Return the support set, its kernel matrix [N, N] and, once the chains have run, omega [S, N]."""
        return dict(self._collected())

    @override
    def load_posterior_state(self, state: dict[str, Tensor]) -> None:
        self.forget()
        self._state = dict(state)

    @override
    def forget(self) -> None:
        self._observed, self._state, self._conditional = [], {}, None

    def kernel(self, x_AD: Tensor, z_BD: Tensor) -> Tensor:
        """Return σ² k(x/ℓ, z/ℓ), [A, B]."""
        config = self.config
        return config.output_scale * _unit_kernel(config.kernel, x_AD / config.length_scale, z_BD / config.length_scale)

    def prior_variance(self, x_BD: Tensor) -> Tensor:
        """Return the kernel of each point with itself, [B]."""
        squared_B = (x_BD / self.config.length_scale).square().sum(-1)
        return self.config.output_scale * (squared_B if self.config.kernel == "linear" else torch.ones_like(squared_B))

    def _project(self, features_BD: Tensor) -> Tensor:
        """Return projected features of length 1: otherwise distances in the hundreds make all kernels 0."""
        return nn.functional.normalize(self.projection(features_BD.to(self.projection.weight.dtype)), dim=-1)

    def _collected(self) -> dict[str, Tensor]:
        if not self._state:
            raise PosteriorError(
                "the Pólya–Gamma head has no posterior for its current weights: they changed after it was computed, or "
                "it never was. Run the training command again with --fresh."
            )
        return self._state

    def _conditional_on(self, device: torch.device) -> Conditional:
        state = self._collected()
        if "omega" not in state:
            raise PosteriorError(
                "the Pólya–Gamma head's support set is collected, but its chains haven't been run: training was "
                "interrupted. Run the same command again to resume from the trained weights."
            )
        if self._conditional is None or self._conditional.omega_SN.device != device:
            there = {name: tensor.to(device) for name, tensor in state.items()}
            self._conditional = gibbs.condition(chain_problem(there), there["omega"])
        return self._conditional


def chain_problem(state: Mapping[str, Tensor]) -> ChainProblem:
    """Return the points for Gibbs chains from a Pólya–Gamma head's posterior state."""
    return ChainProblem(kernel_NN=state["kernel"], mean_N=state["mean"], labels_N=state["labels"])


def _sample_block(state: Mapping[str, Tensor], block: int, **settings: int) -> Chains:
    """Sample a block of the chains over a support set, on a GPU if there is one; they are returned on the CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    there = {name: tensor.to(device) for name, tensor in state.items()}
    chains = gibbs.sample_block(chain_problem(there), block, **settings)
    return Chains(chains.omega_SN.cpu(), chains.num_jitters)


def _on_cpu(**tensors: Tensor) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


def _joined(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in ("features", "mean", "labels")}


def _unit_kernel(name: KernelName, x_AD: Tensor, z_BD: Tensor) -> Tensor:
    """Return exp(−r²/2), (1 + t + t²/3) exp(−t) with t = √5 r (Rasmussen & Williams 2006, Eq. 4.9, 4.17), or xᵀz."""
    inner_AB = x_AD @ z_BD.T
    if name == "linear":
        return inner_AB
    squared_AB = x_AD.square().sum(-1)[:, None] + z_BD.square().sum(-1) - 2 * inner_AB
    if name == "rbf":
        return (-0.5 * squared_AB.clamp_min(0)).exp()
    t_AB = (5 * squared_AB).clamp_min(1e-30).sqrt()  # at 0 the root has no gradient
    return (1 + t_AB + t_AB.square() / 3) * (-t_AB).exp()
