"""Losses on logits of pairs."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from icalib.core.component import Component, ComponentConfig

Link = Literal["sigmoid", "softmax"]
"""How logits become probabilities: each by itself, or by a softmax over the candidates of its pool."""


class AbstractLoss(Component):
    """Loss of each pair from its logit and label: [B], [B] → [B]."""

    class Config(ComponentConfig):
        """Base of losses' settings."""

        link: ClassVar[Link] = "sigmoid"
        """What a model trained with it means by its logits."""

    balanced: bool = False
    """Whether every batch must have right and wrong pairs in the shares that training has."""

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Loss of each pair."""
        raise NotImplementedError


@final
class BinaryCrossEntropy(AbstractLoss):
    """−y log σ(f) − (1 − y) log(1 − σ(f)): ICAST Eq. 4 and 15 with the sign slip mended."""

    class Config(AbstractLoss.Config):
        """Settings of binary cross-entropy."""

        max_loss: float | None = Field(default=None, gt=0)
        """A pair's loss is at most this, and where it is teaches nothing; None leaves it (IART: 10)."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Loss of each pair."""
        labels_B = labels_B.to(torch.float32)
        losses_B = nn.functional.binary_cross_entropy_with_logits(logits_B, labels_B, reduction="none")
        return losses_B if self.config.max_loss is None else losses_B.clamp(max=self.config.max_loss)
