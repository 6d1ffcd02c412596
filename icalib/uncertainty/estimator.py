"""Estimators: moments of logits and probabilities of a batch of pairs. They do not depend on any encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, Protocol, Self, final

from pydantic import Field
from torch import Tensor
from typing_extensions import override

from icalib.core.component import Component, ComponentConfig
from icalib.heads.head import LogitPosterior
from icalib.inference.mixture import mixture_moments
from icalib.inference.mutual_information import Moments, RunningMoments
from icalib.inference.quadrature import MEAN_FIELD_FACTOR, mean_field

Needs = Literal["nothing", "dropout", "posterior"]


class PairModel(Protocol):
    """A model bound to a batch of pairs."""

    def logits(self, *, stochastic: bool, number: int) -> Tensor:
        """Return the logits [B] of one pass; a stochastic pass has all dropout on, seeded by its number."""
        ...

    def with_late_dropout(self, num_layers: int) -> Self:
        """Return the model with dropout in its encoder's top layers only; what is below is computed here, once."""
        ...

    def posterior(self) -> LogitPosterior:
        """Return the posterior of the logits.

        Raises:
            PosteriorError: the model has no posterior.
        """
        ...


class SplitsLayers(Protocol):
    """Settings of an encoder, as an estimator sees them."""

    def check_dropout_layers(self, number: int) -> None:
        """Refuse dropout in the top `number` layers alone with a SettingError, before anything is computed."""
        ...


class AbstractEstimator(Component):
    """Base of estimators of predictive uncertainty."""

    class Config(ComponentConfig):
        """Base of estimators' settings."""

        needs: ClassVar[Needs]
        """What the model must provide."""

        def check(self, encoder: SplitsLayers) -> None:
            """Refuse an encoder that doesn't fit, before anything is computed."""

    def estimate(self, model: PairModel) -> Moments:
        """Return the moments of the pairs' logits."""
        raise NotImplementedError


@final
class Deterministic(AbstractEstimator):
    """A single pass with dropout off: variances and mutual information are 0."""

    class Config(AbstractEstimator.Config):
        """A deterministic pass has no settings."""

        needs: ClassVar[Needs] = "nothing"

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def estimate(self, model: PairModel) -> Moments:
        moments = RunningMoments()
        moments.add(model.logits(stochastic=False, number=0))
        return moments.result()


@final
class MCDropout(AbstractEstimator):
    """T passes with dropout on, including that of attention; by default all of it (ICAST Eq. 9)."""

    class Config(AbstractEstimator.Config):
        """Settings of MC dropout."""

        needs: ClassVar[Needs] = "dropout"

        num_passes: int = Field(default=5, ge=2)
        """T: 5 in ICAST, 10 in GPF-BERT and PG-DRR."""
        dropout_layers: int | None = Field(default=None, ge=0)
        """k: only the encoder's top k layers, and what follows them, have dropout; embeddings and the layers below are
        computed once for all passes, without. Of N layers, T passes then cost as much as (N − k + Tk) / N. This is not
        ICAST's Eq. 9, and g has another scale: choose thresholds of g and Δ for it. None is all dropout."""

        @override
        def check(self, encoder: SplitsLayers) -> None:
            """Refuse `dropout_layers` that the encoder doesn't have.

            Raises:
                SettingError: it has fewer layers, or can't be split into lower and upper ones.
            """
            if self.dropout_layers is not None:
                encoder.check_dropout_layers(self.dropout_layers)

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def estimate(self, model: PairModel) -> Moments:
        layers = self.config.dropout_layers
        if layers is not None:
            model = model.with_late_dropout(layers)
        moments = RunningMoments()
        for number in range(self.config.num_passes):
            moments.add(model.logits(stochastic=True, number=number))
        return moments.result()


@final
class Posterior(AbstractEstimator):
    """A single pass, integrated over the head's posterior of the logit."""

    class Config(AbstractEstimator.Config):
        """Settings of the integral over the posterior."""

        needs: ClassVar[Needs] = "posterior"

        integration: Literal["quadrature", "mean_field"] = "quadrature"
        """How E σ(f) is computed: quadrature (exact to 1e-5 up to a variance of 8), or σ(m / √(1 + λv)), which SNGP
        and GPF-BERT use, with errors up to 0.015. Variances and mutual information always use quadrature."""
        mean_field_factor: float = Field(default=MEAN_FIELD_FACTOR, ge=0, allow_inf_nan=False)
        """λ of mean_field: π/8 by theory, 0.1 in SNGP's code, 0 ignores the variance."""
        num_nodes: int = Field(default=32, ge=2, le=256)
        """Nodes of the quadrature; 64 where variances exceed 16."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @override
    def estimate(self, model: PairModel) -> Moments:
        mean_SB, var_SB = model.posterior()
        moments = mixture_moments(mean_SB, var_SB, num_nodes=self.config.num_nodes)
        if self.config.integration == "quadrature":
            return moments
        return replace(moments, prob_mean=mean_field(mean_SB, var_SB, factor=self.config.mean_field_factor).mean(0))
