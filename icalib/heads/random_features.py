"""The random-feature Gaussian process head of SNGP and GPF-BERT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from icalib.core.errors import PosteriorError
from icalib.encoders.spectral_norm import SpectralLinear
from icalib.heads.head import AbstractHead, LogitPosterior, PairLoss, PosteriorHead, pair_losses
from icalib.inference import laplace
from icalib.inference.laplace import Likelihood


@final
class RandomFeatureHead(PosteriorHead):
    """f = m + φ(x)ᵀβ: a Gaussian process by random features, with Laplace's posterior (SNGP; GPF-BERT Eq. 2-5).

    x is a spectrally normalised dense layer of the encoder's features, then tanh and dropout as in SNGP's code, then
    LayerNorm without parameters. The layer starts as the identity, so that x preserves the pre-trained features. φ is
    fixed.
    """

    class Config(AbstractHead.Config):
        """Settings of the random-feature head."""

        features: Literal["cosine", "linear"] = "cosine"
        """φ. cosine: random features of an RBF kernel. linear: x itself: a linear last layer with Laplace's
        posterior (`num_features` is then D)."""
        num_features: int = Field(default=2048, ge=1)
        """L: the kernel's error is about 1/√L."""
        length_scale: float | None = Field(default=None, gt=0)
        """ℓ of the kernel exp(−‖x − x'‖²/2ℓ²); None is √(D/2), which gives features with cosine 0.9 a kernel of
        0.82."""
        spectral_bound: float | None = Field(default=0.95, gt=0)
        """Largest spectral norm of the dense layer; None for no bound."""
        dropout: float = Field(default=0.1, ge=0, lt=1)
        """Dropout before the LayerNorm, in training."""
        ridge: float = Field(default=1.0, gt=0)
        """τ: prior precision of β."""
        laplace: Literal["exact", "ema"] = "exact"
        """What the posterior's precision is computed from. exact: all training pairs with the final weights. ema: a
        moving average of the updates of the last epoch, each with its weights, as in SNGP's code."""
        ema_momentum: float = Field(default=0.999, ge=0, lt=1)
        """α: decay of the moving average."""
        likelihood: Likelihood = "logistic"
        """Weight of a pair: p(1 − p) for logistic, 1 for gaussian as in SNGP's code."""
        effective_n: float | None = Field(default=None, gt=0)
        """Number of pairs that the precision is scaled to; None for the actual number. SNGP's code has 1000, with a
        `ridge` of 2/L: see the preset `released` of sngp."""

        @property
        @override
        def conditions_on_pairs(self) -> bool:
            return self.laplace == "exact"

    frequencies_LD: Tensor
    phases_L: Tensor
    length_scale: Tensor
    factor_LL: Tensor | None

    def __init__(self, config: Config, *, width: int) -> None:
        super().__init__()
        self.config = config
        self.num_jitters = 0
        self.dense = _dense(width, config.spectral_bound)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.num_features = config.num_features if config.features == "cosine" else width
        self.coefficients = Coefficients(self.num_features)
        self.register_buffer("frequencies_LD", torch.randn(self.num_features, width))
        self.register_buffer("phases_L", 2 * math.pi * torch.rand(self.num_features))
        length_scale = config.length_scale if config.length_scale is not None else math.sqrt(width / 2)
        self.register_buffer("length_scale", torch.tensor([length_scale]), persistent=False)
        self.register_buffer("factor_LL", None, persistent=False)
        self.steps = None if config.laplace == "exact" else StepInformation(self.num_features, config.ema_momentum)
        self._observed: dict[str, Tensor] = {}
        self._counted = True

    @override
    def start_at_mean(self) -> None:
        nn.init.zeros_(self.coefficients.scaled_L)

    @override
    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        return self.features_and_logits(features_BD, mean_B)[1]

    @override
    def losses(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor, loss: PairLoss) -> Tensor:
        if self.training:
            self.forget()
        phi_BL, logits_B = self.features_and_logits(features_BD, mean_B)
        if self.training and self.steps is not None:
            number = len(labels_B)  # inputs of a contrast follow
            seen = laplace.information(phi_BL[:number].detach(), logits_B[:number].detach(), self.config.likelihood)
            self.steps.add_part(seen * self._counted, number * self._counted)
        return pair_losses(loss, logits_B, labels_B)

    @override
    def start_epoch(self) -> None:
        if self.steps is not None:
            self.steps.reset()

    @override
    def start_part(self, *, counted: bool) -> None:
        self._counted = counted

    @override
    def end_update(self) -> None:
        if self.steps is not None:
            self.steps.end_step()

    @override
    @torch.no_grad()
    def observe(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor) -> None:
        if self.steps is not None:
            return
        phi_BL, logits_B = self.features_and_logits(features_BD, mean_B)
        found = {
            "precision": laplace.information(phi_BL, logits_B, self.config.likelihood),
            "count": torch.tensor(len(phi_BL)),
        }
        seen = self._observed
        self._observed = {name: seen[name] + found[name] for name in found} if seen else found

    @override
    def observations(self) -> dict[str, Tensor]:
        if self.steps is not None or self._observed:
            return self._observed
        size = self.num_features
        nothing_LL = torch.zeros(size, size, dtype=torch.float64, device=self.phases_L.device)
        return {"precision": nothing_LL, "count": torch.tensor(0)}

    @override
    @torch.no_grad()
    def collect(self, observations: Sequence[dict[str, Tensor]]) -> None:
        if self.steps is not None:
            total_LL, num_pairs = self.steps.total()
        else:
            first_LL, *others = (one["precision"] for one in observations)
            total_LL = sum((other_LL.to(first_LL) for other_LL in others), start=first_LL)
            num_pairs = sum(int(one["count"]) for one in observations)
        if self.config.effective_n is not None:
            total_LL = total_LL * (self.config.effective_n / max(num_pairs, 1))
        self.forget()
        factor_LL, raised = laplace.precision_factor(total_LL.to(self.phases_L.device), ridge=self.config.ridge)
        self.num_jitters += raised
        self.factor_LL = factor_LL.float()

    @override
    def posterior(self, features_BD: Tensor, mean_B: Tensor) -> LogitPosterior:
        factor_LL = self._factor()
        phi_BL, logits_B = self.features_and_logits(features_BD, mean_B)
        with _float32(phi_BL):
            return LogitPosterior(logits_B[None], laplace.logit_variance(factor_LL, phi_BL)[None])

    @override
    def posterior_state(self) -> dict[str, Tensor]:
        return {"factor": self._factor()}

    @override
    def load_posterior_state(self, state: dict[str, Tensor]) -> None:
        self.factor_LL = state["factor"].to(self.phases_L.device)

    @override
    def forget(self) -> None:
        self.factor_LL = None
        self._observed = {}

    def features_and_logits(self, features_BD: Tensor, mean_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the random features φ [B, L] and the point logits [B]."""
        with _float32(features_BD):
            phi_BL = self._phi(self._hidden(features_BD))
            return phi_BL, mean_B.float() + self.coefficients(phi_BL)

    def _phi(self, hidden_BD: Tensor) -> Tensor:
        if self.config.features == "linear":
            return hidden_BD / math.sqrt(self.num_features)
        return laplace.random_features(hidden_BD / self.length_scale, self.frequencies_LD, self.phases_L)

    def _hidden(self, features_BD: Tensor) -> Tensor:
        return self.norm(self.dropout(torch.tanh(self.dense(features_BD.float()))))

    def _factor(self) -> Tensor:
        if self.factor_LL is None:
            raise PosteriorError(
                "this random-feature head has no posterior for its current weights: they changed after it was "
                "computed, or it never was. Run the training command again with --fresh."
            )
        return self.factor_LL


class Coefficients(nn.Module):
    """φ [B, L] ↦ φᵀβ [B], with β = β'·√(L/2) trained as β': φ has unit norm, and β' learns as on plain cosines.

    β' is a vector and thus exempt from weight decay, which would be a second prior.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.scaled_L = nn.Parameter(0.02 * torch.randn(num_features))

    def forward(self, phi_BL: Tensor) -> Tensor:
        """Return logits [B]."""
        return phi_BL @ (self.scaled_L * math.sqrt(len(self.scaled_L) / 2))


class StepInformation(nn.Module):
    """The information of an epoch's steps over all processes, saved with the weights; `momentum` is α."""

    moving_LL: Tensor
    num_pairs: Tensor
    num_steps: Tensor

    def __init__(self, num_features: int, momentum: float) -> None:
        super().__init__()
        self._momentum = momentum
        self._step: tuple[Tensor, int] | None = None  # no buffer: weights are saved between updates
        self.register_buffer("moving_LL", torch.zeros(num_features, num_features, dtype=torch.float64))
        self.register_buffer("num_pairs", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("num_steps", torch.zeros(1, dtype=torch.int64))

    def reset(self) -> None:
        """Reset to zero."""
        self._step = None
        for buffer in self.buffers():
            buffer.zero_()

    def add_part(self, part_LL: Tensor, num_pairs: int) -> None:
        """Add the Σ wφφᵀ of this process' part of a step; every process must call it, with 0 pairs if it has none."""
        if self._step is not None:
            part_LL, num_pairs = self._step[0] + part_LL, self._step[1] + num_pairs
        self._step = part_LL, num_pairs

    @torch.no_grad()
    def end_step(self) -> None:
        """Update the average by the sum of the step's parts over processes; a step of intents has none."""
        if self._step is None:
            return
        (step_LL, num_pairs), self._step = self._step, None
        pairs = torch.full_like(self.num_pairs, num_pairs)
        if dist.is_initialized():
            dist.all_reduce(step_LL)
            dist.all_reduce(pairs)
        counts = pairs > 0  # stays on the device: reading it would wait for the update
        # P̄ ← αP̄ + (1 − α)(1/M) Σ wφφᵀ over a step's M pairs: GPF-BERT Eq. 5 with the mean of SNGP's code
        weight = (1 - self._momentum) * counts.to(self.moving_LL.dtype)
        self.moving_LL.lerp_(step_LL / pairs.clamp(min=1), weight)
        self.num_pairs += pairs
        self.num_steps += counts

    def total(self) -> tuple[Tensor, int]:
        """Return the epoch's Σ wφφᵀ [L, L] and its number of pairs."""
        num_pairs, num_steps = int(self.num_pairs), int(self.num_steps)
        if not num_steps:
            raise PosteriorError(
                "head.laplace computes the precision from the last epoch's training steps, and these weights had no "
                "step. Train them, or set head.laplace=exact."
            )
        return self.moving_LL * (num_pairs / (1 - self._momentum**num_steps)), num_pairs  # it started from 0


def _dense(width: int, bound: float | None) -> nn.Linear:
    dense = nn.Linear(width, width)
    nn.init.eye_(dense.weight)
    nn.init.zeros_(dense.bias)
    return dense if bound is None else SpectralLinear(dense, bound=bound)


def _float32(features: Tensor) -> torch.autocast:
    """Switch autocast off: the posterior needs more digits than bfloat16 has."""
    return torch.autocast(features.device.type, enabled=False)
