"""Losses on logits of pairs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from icalib.core.combination import PAIR_LOGITS, PAIR_PROBS, POOL_PROBS, Capabilities
from icalib.core.component import Component, ComponentConfig, missing

Link = Literal["sigmoid", "softmax"]
"""How logits become probabilities: individually, or by a softmax over the candidates of a pool."""


class AbstractLoss(Component):
    """Base of losses, which give each pair a loss from its logit and label: [B], [B] → [B]."""

    class Config(ComponentConfig):
        """Base of losses' settings."""

        link: ClassVar[Link] = "sigmoid"
        """Which probabilities the logits of a model trained with it stand for."""

        @override
        def provides(self) -> Capabilities:
            return {PAIR_PROBS if self.link == "sigmoid" else POOL_PROBS}

        @override
        def requires(self) -> Capabilities:
            return {PAIR_LOGITS}

    balanced: bool = False  # whether every batch must have the same fraction of right pairs as the training set

    def __init__(self, config: Any) -> None:
        self.config = config

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """Return the loss of each pair."""
        raise missing(self, "__call__")


@final
class BinaryCrossEntropy(AbstractLoss):
    """−y log σ(f) − (1 − y) log(1 − σ(f)): ICAST Eq. 15 with the sign error fixed."""

    class Config(AbstractLoss.Config):
        """Settings of binary cross-entropy."""

        max_loss: float | None = Field(default=None, gt=0)
        """Largest loss of a pair; pairs at this bound have no gradient. None for no bound (IART: 10)."""

    @override
    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        labels_B = labels_B.to(torch.float32)
        losses_B = nn.functional.binary_cross_entropy_with_logits(logits_B, labels_B, reduction="none")
        return losses_B if self.config.max_loss is None else losses_B.clamp(max=self.config.max_loss)
