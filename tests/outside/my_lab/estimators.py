"""Estimators of our own."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from pydantic import Field

from icalib.heads.head import LogitPosterior
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

    def components(self, model: PairModel) -> LogitPosterior:
        """One component a pass."""
        mean_SB = torch.cat([model.logits()[None], model.dropout_logits(self.config.num_passes)]).double()
        return LogitPosterior(mean_SB, torch.zeros_like(mean_SB))
