"""Losses of our own."""

from __future__ import annotations

from typing import final

from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from icalib.losses.binary import AbstractLoss


@final
class Soft(AbstractLoss):
    """Binary cross-entropy with smoothed labels: y (1 − ε) + ε/2 (Müller et al. 2019)."""

    class Config(AbstractLoss.Config):
        """Settings of label smoothing."""

        epsilon: float = Field(default=0.1, ge=0, lt=1)
        """ε; 0 is the binary cross-entropy."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Loss of each pair [B]."""
        epsilon = self.config.epsilon
        targets_B = labels_B.to(logits_B.dtype) * (1 - epsilon) + epsilon / 2
        return binary_cross_entropy_with_logits(logits_B, targets_B, reduction="none")
