"""Estimators: moments of logits and probabilities of a batch of pairs. They do not depend on any encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol, Self, final

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import override

from icalib.core.combination import CROSS_ENCODER, DROPOUT, PAIR_PROBS, POSTERIOR, UNCERTAINTY, Capabilities
from icalib.core.component import Component, ComponentConfig, import_path, is_ours
from icalib.core.errors import SettingError
from icalib.core.text import short_repr
from icalib.heads.head import LogitPosterior
from icalib.inference.moments import MEAN_FIELD_FACTOR, Moments, mean_field, mixture_moments, pass_moments

Values = npt.NDArray[np.float64]
Needs = Literal["nothing", "dropout", "posterior"]
_REQUIRED: Mapping[Needs, Capabilities] = {
    "nothing": frozenset(),
    "dropout": {DROPOUT, PAIR_PROBS},
    "posterior": {POSTERIOR, CROSS_ENCODER, PAIR_PROBS},
}


class PairModel(Protocol):
    """A model bound to a batch of pairs."""

    def logits(self) -> Tensor:
        """Return the logits [B] of a pass without dropout."""
        ...

    def dropout_logits(self, num_passes: int) -> Tensor:
        """Return the logits [S, B] of passes with all dropout on, each with masks of its own."""
        ...

    def posterior(self) -> LogitPosterior:
        """Return the posterior of the logits; a PosteriorError if there is none."""
        ...


class AbstractEstimator(Component):
    """Base of estimators of predictive uncertainty."""

    class Config(ComponentConfig):
        """Base of estimators' settings."""

        needs: ClassVar[Needs]
        """What the model must provide."""

        @model_validator(mode="after")
        def _check_needs(self) -> Self:
            needs = getattr(type(self), "needs", None)
            if needs not in _REQUIRED:
                raise ValueError(f"`needs` of {type(self).__qualname__} is {needs!r}; expected {', '.join(_REQUIRED)}")
            return self

        @override
        def provides(self) -> Capabilities:
            return frozenset() if self.needs == "nothing" else {UNCERTAINTY}

        @override
        def requires(self) -> Capabilities:
            return _REQUIRED[self.needs]

        def for_validation(self) -> Self:
            """Return the settings for choosing an epoch, after each of which few passes rank about as well as all."""
            return self

    def __init__(self, config: Any) -> None:
        self.config = config

    def components(self, model: PairModel) -> LogitPosterior:
        """Return the S components of the distribution of the pairs' logits."""
        raise NotImplementedError

    def moments(self, components: LogitPosterior) -> Moments:
        """Return the moments of components, which may be the sums of those of several parts."""
        return pass_moments(*components)


def checked_components(estimator: AbstractEstimator, model: PairModel, num_pairs: int) -> LogitPosterior:
    """Return an estimator's components of a batch of pairs; a SettingError names one that returns something else.

    Their values are left to `check_values`: looking at them would wait for a GPU.
    """
    found: Any = estimator.components(model)
    values: tuple[Any, ...] = found if isinstance(found, LogitPosterior) else ()
    if not values or not all(isinstance(one, Tensor) for one in values):
        returned = short_repr(found)
    elif found.mean_SB.shape != found.var_SB.shape or found.mean_SB.shape[1:] != (num_pairs,) or not len(found.mean_SB):
        returned = f"tensors of shapes {list(found.mean_SB.shape)} and {list(found.var_SB.shape)}"
    else:
        return found
    raise SettingError(
        f"the estimator `{import_path(type(estimator))}` returned {returned} from `components`; expected a "
        f"LogitPosterior of two tensors [S, {num_pairs}], S being 1 or more. Correct it."
    )


def check_values(estimator: AbstractEstimator, mean_SN: Values, var_SN: Values) -> None:
    """Refuse the components of an estimator from outside that aren't means and variances, by a SettingError."""
    if is_ours(type(estimator)):
        return
    if not (np.isfinite(mean_SN).all() and np.isfinite(var_SN).all() and (var_SN >= 0).all()):
        raise SettingError(
            f"the estimator `{import_path(type(estimator))}` returned means or variances that aren't finite, or "
            "negative variances. Correct it."
        )


@final
class Deterministic(AbstractEstimator):
    """A single pass with dropout off: variances and mutual information are 0."""

    class Config(AbstractEstimator.Config):
        """A deterministic pass has no settings."""

        needs: ClassVar[Needs] = "nothing"

    @override
    def components(self, model: PairModel) -> LogitPosterior:
        mean_SB = model.logits().double()[None]
        return LogitPosterior(mean_SB, torch.zeros_like(mean_SB))


@final
class MCDropout(AbstractEstimator):
    """T passes with dropout on, including that of attention; by default all of it (ICAST Eq. 9)."""

    class Config(AbstractEstimator.Config):
        """Settings of MC dropout."""

        needs: ClassVar[Needs] = "dropout"

        num_passes: int = Field(default=5, ge=2)
        """T: 5 in ICAST, 10 in GPF-BERT and PG-DRR. Two where an epoch is chosen."""

        @override
        def for_validation(self) -> Self:
            return self.model_copy(update={"num_passes": 2})

    @override
    def components(self, model: PairModel) -> LogitPosterior:
        mean_SB = model.dropout_logits(self.config.num_passes).double()
        return LogitPosterior(mean_SB, torch.zeros_like(mean_SB))


@final
class Posterior(AbstractEstimator):
    """A single pass, integrated over the head's posterior of the logit."""

    class Config(AbstractEstimator.Config):
        """Settings of the integral over the posterior."""

        needs: ClassVar[Needs] = "posterior"

        integration: Literal["quadrature", "mean_field"] = "quadrature"
        """How E σ(f) is computed: quadrature (exact to 1e-5 up to a variance of 8), or σ(m / √(1 + λv)), which SNGP
        and GPF-BERT use, with errors up to 0.015. Variances and mutual information always use quadrature."""
        mean_field_factor: float = Field(default=MEAN_FIELD_FACTOR, ge=0)
        """λ of mean_field: π/8 by theory, 0.1 in SNGP's code, 0 ignores the variance."""
        num_nodes: int = Field(default=32, ge=2, le=256)
        """Nodes of the quadrature; 64 where variances exceed 16."""

    @override
    def components(self, model: PairModel) -> LogitPosterior:
        return model.posterior()

    @override
    def moments(self, components: LogitPosterior) -> Moments:
        mean_SB, var_SB = components
        moments = mixture_moments(mean_SB, var_SB, num_nodes=self.config.num_nodes)
        if self.config.integration == "quadrature":
            return moments
        return replace(moments, prob_mean=mean_field(mean_SB, var_SB, factor=self.config.mean_field_factor).mean(0))
