"""Losses on logits of pairs."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from icalib.core.component import Component, ComponentConfig


class AbstractLoss(Component):
    """Loss of each pair from its logit and label: [B], [B] → [B]."""

    class Config(ComponentConfig):
        """Base of losses' settings."""

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Loss of each pair."""
        raise NotImplementedError


@final
class BinaryCrossEntropy(AbstractLoss):
    """−y log σ(f) − (1 − y) log(1 − σ(f)): ICAST Eq. 4 and 15 with the sign slip mended."""

    class Config(AbstractLoss.Config):
        """Binary cross-entropy has no settings."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Loss of each pair."""
        return nn.functional.binary_cross_entropy_with_logits(logits_B, labels_B.to(torch.float32), reduction="none")
