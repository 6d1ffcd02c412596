"""Fitted calibration maps: plain values that a run folder keeps as JSON and later predictions use.

A map takes the logit of a pair's mean probability (see `prob_logit`) and gives a new probability. All are monotone,
but isotonic ones are flat in places: candidates are ranked by what the model gave, never by a map's probabilities.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Literal, Self, final

import numpy as np
from pydantic import Field, FiniteFloat, NonNegativeFloat, PositiveFloat, model_validator
from scipy.special import expit, logit

from icalib.core.component import Settings
from icalib.metrics.pairs import FloatArray


class FittedMap(Settings):
    """A monotone map from logits to probabilities."""

    def apply(self, logit_N: FloatArray) -> FloatArray:
        """Probabilities in [0, 1], [N]."""
        raise NotImplementedError


@final
class AffineMap(FittedMap):
    """σ(a f + b): temperature scaling has b = 0, a prior shift a = 1."""

    kind: Literal["affine"] = "affine"
    slope: Annotated[PositiveFloat, FiniteFloat]
    """a"""
    offset: FiniteFloat
    """b"""

    def apply(self, logit_N: FloatArray) -> FloatArray:
        """σ(a f + b)."""
        return expit(self.slope * logit_N + self.offset)


@final
class IsotonicMap(FittedMap):
    """Straight lines between knots, constant outside them."""

    kind: Literal["isotonic"] = "isotonic"
    logits: tuple[FiniteFloat, ...] = Field(min_length=1)
    """Where the knots are, ascending."""
    probs: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """Probabilities at the knots, none smaller than the one before."""

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        strictly = all(low < high for low, high in itertools.pairwise(self.logits))
        if len(self.logits) != len(self.probs) or not strictly or list(self.probs) != sorted(self.probs):
            raise ValueError(
                f"{len(self.logits)} logits and {len(self.probs)} probabilities are no isotonic map; both must ascend "
                "and have one length"
            )
        return self

    def apply(self, logit_N: FloatArray) -> FloatArray:
        """Linear interpolation."""
        return np.interp(logit_N, self.logits, self.probs)


@final
class FocalInverseMap(FittedMap):
    """The true probability whose expected focal loss is least at σ(f)."""

    kind: Literal["focal-inverse"] = "focal-inverse"
    gamma: Annotated[NonNegativeFloat, FiniteFloat]
    """γ of the loss; 0 is σ itself."""

    def apply(self, logit_N: FloatArray) -> FloatArray:
        """σ of the inverse (Charoenphakdee et al. 2021)."""
        import torch

        from icalib.inference.focal import inverse_focal_logits

        return expit(inverse_focal_logits(torch.tensor(logit_N), self.gamma).numpy())


AnyMap = Annotated[AffineMap | IsotonicMap | FocalInverseMap, Field(discriminator="kind")]
"""The type of a setting that holds some map; `kind` tells which when it is read from a file."""


def prob_logit(prob: FloatArray) -> FloatArray:
    """ln(p / (1 − p)), finite for p = 0 and 1."""
    tiny = np.finfo(np.float64).tiny
    return logit(np.clip(prob, tiny, 1 - np.finfo(np.float64).epsneg))
