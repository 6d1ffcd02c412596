"""Fitted calibration maps: values that are saved in the run folder as JSON and used for later predictions.

A map turns the logit of a pair's mean probability (see `pair_logit`) into a calibrated probability. Within a pool maps
are monotone, but isotonic ones have flat pieces: candidates are ranked by the model's logits, never by calibrated
probabilities.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

import numpy as np
from pydantic import Field, FiniteFloat, NonNegativeFloat, PositiveFloat, model_validator
from scipy.special import expit, log_expit, logit
from typing_extensions import override

from icalib.core.component import Settings
from icalib.metrics.pairs import FloatArray, IntArray, pool_softmax

_ROUNDING = float(np.finfo(np.float64).epsneg)  # distance from 1 to the largest smaller number


class FittedMap(Settings):
    """A monotone map from logits to probabilities."""

    def apply(
        self, logit_N: FloatArray, sizes_P: IntArray | None = None, p_none_P: FloatArray | None = None
    ) -> FloatArray:
        """Return probabilities in [0, 1], [N].

        A softmax needs the P pools' numbers of candidates, and reads the probabilities that none is right.
        """
        raise NotImplementedError

    @property
    def of_pairs(self) -> FittedMap:
        """The map for pairs whose pool isn't known."""
        return self


@final
class AffineMap(FittedMap):
    """σ(a f + b): temperature scaling has b = 0, a prior shift a = 1."""

    kind: Literal["affine"] = "affine"
    slope: Annotated[PositiveFloat, FiniteFloat]  # a
    offset: FiniteFloat  # b

    @override
    def apply(
        self, logit_N: FloatArray, sizes_P: IntArray | None = None, p_none_P: FloatArray | None = None
    ) -> FloatArray:
        return expit(self.slope * logit_N + self.offset)


@final
class IsotonicMap(FittedMap):
    """A piecewise linear map, constant outside its knots."""

    kind: Literal["isotonic"] = "isotonic"
    logits: tuple[FiniteFloat, ...] = Field(min_length=1)  # logits of the knots, ascending
    probs: tuple[Annotated[float, Field(ge=0, le=1)], ...]  # probabilities at the knots, non-decreasing

    @model_validator(mode="after")
    def _are_pairs(self) -> Self:
        if len(self.logits) != len(self.probs):
            raise ValueError(f"found {len(self.logits)} logits and {len(self.probs)} probs; expected one for each")
        return self

    @override
    def apply(
        self, logit_N: FloatArray, sizes_P: IntArray | None = None, p_none_P: FloatArray | None = None
    ) -> FloatArray:
        return np.interp(logit_N, self.logits, self.probs)


@final
class FocalInverseMap(FittedMap):
    """The true probability whose expected focal loss is smallest at σ(f) (Charoenphakdee et al. 2021), and then a prior
    shift by `offset`."""

    kind: Literal["focal-inverse"] = "focal-inverse"
    gamma: Annotated[NonNegativeFloat, FiniteFloat]  # γ of the loss; 0 gives σ
    offset: FiniteFloat = 0.0  # added to the logit of that probability

    @override
    def apply(
        self, logit_N: FloatArray, sizes_P: IntArray | None = None, p_none_P: FloatArray | None = None
    ) -> FloatArray:
        import torch

        from icalib.inference.focal import inverse_focal_logits

        return expit(inverse_focal_logits(torch.tensor(logit_N), self.gamma).numpy() + self.offset)


@final
class PoolSoftmaxMap(FittedMap):
    """(1 − p_none) softmax(a f) over the candidates of a pool, of which at most one is right.

    A candidate without any other, of which a softmax says nothing, has a pair's probability if p_none isn't known.
    """

    kind: Literal["pool-softmax"] = "pool-softmax"
    slope: Annotated[PositiveFloat, FiniteFloat]  # a
    of_log_probs: bool = False
    """Whether f is the logarithm of the probability, not its logit: in a pool these sum to 1 before calibration."""
    pairs: AffineMap
    """For pairs whose pool isn't known."""

    @override
    def apply(
        self, logit_N: FloatArray, sizes_P: IntArray | None = None, p_none_P: FloatArray | None = None
    ) -> FloatArray:
        assert sizes_P is not None
        f_N = log_expit(logit_N) if self.of_log_probs else logit_N
        prob = pool_softmax(self.slope * f_N, sizes_P)
        if p_none_P is None:
            return np.where(np.repeat(sizes_P, sizes_P) > 1, prob, self.pairs.apply(logit_N))
        return prob * np.repeat(1 - p_none_P, sizes_P)

    @property
    @override
    def of_pairs(self) -> AffineMap:
        return self.pairs


AnyMap = Annotated[AffineMap | IsotonicMap | FocalInverseMap | PoolSoftmaxMap, Field(discriminator="kind")]
"""Type of a setting that holds a map; `kind` selects the class when it is read from a file."""


def prob_logit(prob: FloatArray) -> FloatArray:
    """Return ln(p / (1 − p)), [N]; it is −36.7 for p = 0 and 36.7 for 1, the largest that a probability can express."""
    return logit(np.clip(prob, _ROUNDING, 1 - _ROUNDING))


def pair_logit(prob: FloatArray, logit: FloatArray) -> FloatArray:
    """Return the logits of pairs' mean probabilities, which calibrators map and, with a variance, rank by; [N].

    Where σ of the mean logit is the mean probability, up to rounding, that is the mean logit, whose digits near 0 and 1
    the probability has lost; elsewhere `prob_logit`.
    """
    same = np.isclose(expit(logit), prob, rtol=1e-12, atol=_ROUNDING)
    return np.where(same, logit, prob_logit(prob))
