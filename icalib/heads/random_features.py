"""The random-feature Gaussian process head of SNGP and GPF-BERT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor, nn

from icalib.core.errors import PosteriorError, SettingError
from icalib.encoders.spectral_norm import SpectralLinear
from icalib.heads.head import AbstractHead, LogitPosterior, PairLoss, PosteriorHead
from icalib.inference.laplace import Likelihood, information, logit_variance, precision_factor
from icalib.inference.random_features import median_distance, random_features


@final
class RandomFeatureHead(PosteriorHead):
    """f = m + φ(x)ᵀβ: a Gaussian process by random features, with Laplace's posterior (SNGP; GPF-BERT Eq. 2-5).

    x is a spectrally normalised dense layer of the encoder's features, then tanh, dropout and LayerNorm without
    parameters. The layer starts as the identity, so that x keeps what the pre-trained encoder knows. φ is fixed.
    """

    class Config(AbstractHead.Config):
        """Settings of the random-feature head."""

        features: Literal["cosine", "linear"] = "cosine"
        """φ. cosine: random features of an RBF kernel. linear: x itself: a linear last layer with Laplace's
        posterior (`num_features` is then D)."""
        num_features: int = Field(default=2048, ge=1)
        """L: the kernel is met to about 1/√L."""
        length_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["median"] | None = None
        """ℓ of the kernel exp(−‖x − x'‖²/2ℓ²); None is √(D/2), which gives features at cosine 0.9 a kernel of 0.82;
        median is the median distance within the first batch of training."""
        spectral_bound: float | None = Field(default=0.95, gt=0)
        """Largest spectral norm of the dense layer; None doesn't bound it."""
        activation: Literal["tanh", "none"] = "tanh"
        """What follows the dense layer."""
        dropout: float = Field(default=0.1, ge=0, lt=1)
        """Dropout before the LayerNorm, in training."""
        ridge: float = Field(default=1.0, gt=0, allow_inf_nan=False)
        """τ: prior precision of β."""
        laplace: Literal["exact", "last_epoch_sum", "ema"] = "exact"
        """Where the posterior's precision comes from. exact: the training pairs under the final weights.
        last_epoch_sum: the last epoch's steps, as the weights moved. ema: the same steps, the latest counting most,
        as in SNGP's code."""
        ema_momentum: float = Field(default=0.999, ge=0, lt=1)
        """α: what each step leaves of the moving average."""
        likelihood: Likelihood = "logistic"
        """logistic weighs a pair by p(1 − p), gaussian by 1, as SNGP's code."""
        effective_n: float | None = Field(default=None, gt=0, allow_inf_nan=False)
        """How many pairs the precision stands for; None is the number of pairs seen. SNGP's code has 1000."""

        @property
        def looks_at_pairs(self) -> bool:
            """Only for the exact precision."""
            return self.laplace == "exact"

    frequencies_LD: Tensor
    phases_L: Tensor
    length_scale: Tensor
    length_scale_known: Tensor
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
        given = config.length_scale if isinstance(config.length_scale, float) else math.sqrt(width / 2)
        median = config.length_scale == "median"
        self.register_buffer("length_scale", torch.tensor([given]), persistent=median)
        self.register_buffer("length_scale_known", torch.tensor([not median]), persistent=median)
        self.register_buffer("factor_LL", None, persistent=False)
        self.steps = None if config.laplace == "exact" else StepInformation(self.num_features, _momentum(config))
        self._observed_LL: Tensor | None = None
        self._num_observed = 0
        self._counted = True

    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Point logits [B]: those of the posterior's mode."""
        return self._phi_and_logits(features_BD, mean_B)[1]

    def losses(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor, loss: PairLoss) -> Tensor:
        """Training loss of each pair [B]; training without exact Laplace also counts the step's information.

        Raises:
            SettingError: the median distance is asked for, and the first batch has no two different pairs.
        """
        if self.training:
            self.forget()
            self._fit_length_scale(features_BD)
        phi_BL, logits_B = self._phi_and_logits(features_BD, mean_B)
        if self.training and self.steps is not None:
            seen = information(phi_BL.detach(), logits_B.detach(), self.config.likelihood)
            self.steps.add(seen * self._counted, len(phi_BL) * self._counted)
        return loss(logits_B, labels_B)

    def start_epoch(self) -> None:
        """The information of an epoch's steps is summed from nothing."""
        if self.steps is not None:
            self.steps.reset()

    def start_part(self, *, counted: bool) -> None:
        """Pairs that stand in for none give no information."""
        self._counted = counted

    @torch.no_grad()
    def observe(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor) -> None:
        """Add some training pairs' information; nothing to do where training summed it."""
        if self.steps is None:
            phi_BL, logits_B = self._phi_and_logits(features_BD, mean_B)
            self._observed_LL = self._observed() + information(phi_BL, logits_B, self.config.likelihood)
            self._num_observed += len(phi_BL)

    def observations(self) -> dict[str, Tensor]:
        """The information [L, L] and the number of pairs that this process has seen; empty where training summed it."""
        if self.steps is not None:
            return {}
        return {"precision": self._observed(), "count": torch.tensor([self._num_observed])}

    @torch.no_grad()
    def condition(self, shares: Sequence[dict[str, Tensor]], *, seed: int) -> None:
        """Factor the precision of all pairs; nothing is drawn, so `seed` has no part in it.

        Raises:
            NumericalError: weights or features aren't finite.
            PosteriorError: training was to sum the information, and there was none.
        """
        total_LL, num_pairs = self.steps.total() if self.steps is not None else _joined(shares)
        if self.config.effective_n is not None:
            total_LL = total_LL * (self.config.effective_n / max(num_pairs, 1))
        factor_LL, raised = precision_factor(total_LL.to(self.phases_L.device), ridge=self.config.ridge)
        self.forget()
        self.num_jitters += raised
        self.factor_LL = factor_LL.float()

    def posterior(self, features_BD: Tensor, mean_B: Tensor) -> LogitPosterior:
        """The logits' posterior: one Gaussian, fields [1, B].

        Raises:
            PosteriorError: there is none for the weights as they are.
        """
        factor_LL = self._factor()
        phi_BL, logits_B = self._phi_and_logits(features_BD, mean_B)
        with _float32(phi_BL):
            return LogitPosterior(logits_B[None], logit_variance(factor_LL, phi_BL)[None])

    def posterior_state(self) -> dict[str, Tensor]:
        """The precision's Cholesky factor [L, L].

        Raises:
            PosteriorError: there is none for the weights as they are.
        """
        return {"factor": self._factor()}

    def load_posterior_state(self, state: dict[str, Tensor]) -> None:
        """Take a Cholesky factor from a checkpoint.

        Raises:
            PosteriorError: it is missing or of another size.
        """
        shape = list(state["factor"].shape) if "factor" in state else None
        if shape != [self.num_features] * 2:
            raise PosteriorError(
                f"the posterior of a head with {self.num_features} random features is a factor of that many "
                f"rows and columns; the checkpoint holds {shape or sorted(state)}. Delete the checkpoint and give the "
                "command again: what it held is computed anew."
            )
        self.factor_LL = state["factor"].to(self.phases_L.device)

    def forget(self) -> None:
        """Drop posterior and observations; the information that training sums stays."""
        self.factor_LL = None
        self._observed_LL = None
        self._num_observed = 0

    def _phi_and_logits(self, features_BD: Tensor, mean_B: Tensor) -> tuple[Tensor, Tensor]:
        with _float32(features_BD):
            phi_BL = self._phi(self._hidden(features_BD))
            return phi_BL, mean_B.float() + self.coefficients(phi_BL)

    def _phi(self, hidden_BD: Tensor) -> Tensor:
        """Features of about unit norm [B, L]."""
        if self.config.features == "linear":
            return hidden_BD / math.sqrt(self.num_features)
        return random_features(hidden_BD / self.length_scale, self.frequencies_LD, self.phases_L)

    def _hidden(self, features_BD: Tensor) -> Tensor:
        hidden_BD = self.dense(features_BD.float())
        if self.config.activation == "tanh":
            hidden_BD = torch.tanh(hidden_BD)
        return self.norm(self.dropout(hidden_BD))

    @torch.no_grad()
    def _fit_length_scale(self, features_BD: Tensor) -> None:
        """Set the length-scale in the first step, from the pairs of all processes."""
        if self.config.length_scale != "median" or bool(self.length_scale_known):
            return
        with _float32(features_BD):
            distance = median_distance(_gathered(self._hidden(features_BD)))
        if distance.isnan():
            raise SettingError(
                "head.length_scale is `median`, but the first batch has no two different pairs. Give a number, or "
                "lower `gradient_accumulation`."
            )
        self.length_scale.copy_(distance)
        self.length_scale_known.fill_(True)

    def _observed(self) -> Tensor:
        if self._observed_LL is not None:
            return self._observed_LL
        size = self.num_features
        return torch.zeros(size, size, dtype=torch.float64, device=self.phases_L.device)

    def _factor(self) -> Tensor:
        if self.factor_LL is None:
            raise PosteriorError(
                "this random-feature head has no posterior for the weights as they are: they were trained further, or "
                "the head was never shown its training pairs. Give the command that trained it again with --fresh."
            )
        return self.factor_LL


class Coefficients(nn.Module):
    """φ [B, L] ↦ φᵀβ [B], with β = β'·√(L/2) learnt as β'.

    The scaling lets φ have unit norm, as the prior β ~ N(0, I) needs it, while β' learns as fast as on unscaled
    cosines. β' is a vector, and so free of weight decay, which would be a second prior.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.scaled_L = nn.Parameter(0.02 * torch.randn(num_features))

    def forward(self, phi_BL: Tensor) -> Tensor:
        """Logits [B]."""
        return phi_BL @ (self.scaled_L * math.sqrt(len(self.scaled_L) / 2))


class StepInformation(nn.Module):
    """The information of an epoch's training steps, over all processes; a part of the weights' checkpoint.

    Args:
        num_features: L.
        momentum: α of a moving average; None sums.
    """

    moving_LL: Tensor
    num_pairs: Tensor
    num_steps: Tensor

    def __init__(self, num_features: int, momentum: float | None) -> None:
        super().__init__()
        self._momentum = momentum
        self.register_buffer("moving_LL", torch.zeros(num_features, num_features, dtype=torch.float64))
        self.register_buffer("num_pairs", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("num_steps", torch.zeros(1, dtype=torch.int64))

    def reset(self) -> None:
        """Start from nothing."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def add(self, step_LL: Tensor, num_pairs: int) -> None:
        """Add a step's Σ wφφᵀ; every process must, with 0 pairs if it has none, and all end up with the same."""
        pairs = torch.full_like(self.num_pairs, num_pairs)
        if dist.is_initialized():
            dist.all_reduce(step_LL)
            dist.all_reduce(pairs)
        if not int(pairs):
            return
        if self._momentum is None:
            self.moving_LL.add_(step_LL)
        else:  # P̄ ← αP̄ + (1 − α)(1/M) Σ wφφᵀ over a step's M pairs: GPF-BERT Eq. 5 with the mean of SNGP's code
            self.moving_LL.lerp_(step_LL / pairs, 1 - self._momentum)
        self.num_pairs += pairs
        self.num_steps += 1

    def total(self) -> tuple[Tensor, int]:
        """The epoch's Σ wφφᵀ [L, L] and its number of pairs.

        Raises:
            PosteriorError: no step was added.
        """
        num_pairs, num_steps = int(self.num_pairs), int(self.num_steps)
        if not num_steps:
            raise PosteriorError(
                "head.laplace takes the precision from the last epoch's training steps, and these weights have had "
                "none. Train them, or set head.laplace=exact."
            )
        if self._momentum is None:
            return self.moving_LL, num_pairs
        return self.moving_LL * (num_pairs / (1 - self._momentum**num_steps)), num_pairs  # it started from 0


def _dense(width: int, bound: float | None) -> nn.Linear:
    dense = nn.Linear(width, width)
    nn.init.eye_(dense.weight)
    nn.init.zeros_(dense.bias)
    return dense if bound is None else SpectralLinear(dense, bound=bound)


def _momentum(config: RandomFeatureHead.Config) -> float | None:
    return config.ema_momentum if config.laplace == "ema" else None


def _joined(shares: Sequence[dict[str, Tensor]]) -> tuple[Tensor, int]:
    """The information and number of all processes' pairs, added in rank order."""
    total_LL = shares[0]["precision"]
    for share in shares[1:]:
        total_LL = total_LL + share["precision"].to(total_LL.device)
    return total_LL, sum(int(share["count"]) for share in shares)


def _gathered(rows: Tensor) -> Tensor:
    """All processes' rows, in rank order."""
    if not dist.is_initialized():
        return rows
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, rows.cpu())
    return torch.cat(found).to(rows.device)


def _float32(features: Tensor) -> torch.autocast:
    """No autocast: the posterior needs more digits than bfloat16 has."""
    return torch.autocast(features.device.type, enabled=False)
