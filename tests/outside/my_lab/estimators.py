"""Estimators of our own."""

from __future__ import annotations

from typing import ClassVar, final

from pydantic import Field

from icalib.inference.mutual_information import Moments, RunningMoments
from icalib.uncertainty.estimator import AbstractEstimator, Needs, PairModel


@final
class AnchoredDropout(AbstractEstimator):
    """T dropout passes and one pass without dropout, all with equal weights."""

    class Config(AbstractEstimator.Config):
        """Settings of the passes."""

        needs: ClassVar[Needs] = "dropout"

        num_passes: int = Field(default=4, ge=1)
        """T: stochastic passes beside the deterministic one."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def estimate(self, model: PairModel) -> Moments:
        """Moments over all passes."""
        moments = RunningMoments()
        moments.add(model.logits(stochastic=False, number=0))
        for number in range(self.config.num_passes):
            moments.add(model.logits(stochastic=True, number=number))
        return moments.result()
