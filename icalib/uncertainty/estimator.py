"""Estimators: from a forward function to moments of logit and probability. They know no encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from pydantic import Field
from torch import Tensor

from icalib.core.component import Component, ComponentConfig
from icalib.inference.mutual_information import Moments, RunningMoments

Forward = Callable[[bool, int], Tensor]
"""`forward(stochastic, pass_number)` gives the logits [B] of one pass; stochastic passes have every dropout on and
draw from a seed of their own."""


class AbstractEstimator(Component):
    """Says how sure a prediction is."""

    class Config(ComponentConfig):
        """Base of estimators' settings."""

    def estimate(self, forward: Forward) -> Moments:
        """Moments of the logits that `forward` gives."""
        raise NotImplementedError


@final
class Deterministic(AbstractEstimator):
    """One pass with dropout off: variances and mutual information are 0."""

    class Config(AbstractEstimator.Config):
        """A deterministic pass has no settings."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def estimate(self, forward: Forward) -> Moments:
        """One pass."""
        moments = RunningMoments()
        moments.add(forward(False, 0))
        return moments.result()


@final
class MCDropout(AbstractEstimator):
    """T passes with every dropout on, attention's too (ICAST Eq. 9)."""

    class Config(AbstractEstimator.Config):
        """Settings of MC dropout."""

        num_passes: int = Field(default=5, ge=2)
        """T: 5 in ICAST, 10 in GPF-BERT and PG-DRR."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def estimate(self, forward: Forward) -> Moments:
        """T passes, summed as they come."""
        moments = RunningMoments()
        for number in range(self.config.num_passes):
            moments.add(forward(True, number))
        return moments.result()
