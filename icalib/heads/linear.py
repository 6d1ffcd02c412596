"""Heads: from the encoder's features to one logit a pair."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from icalib.core.component import Component, ComponentConfig


class AbstractHead(Component, nn.Module):
    """Turns features [B, D] into logits [B]; computes in float32 whatever the encoder's precision."""

    class Config(ComponentConfig):
        """Base of heads' settings."""


@final
class LinearHead(AbstractHead):
    """f = wᵀh + b."""

    class Config(AbstractHead.Config):
        """A linear head has no settings."""

    def __init__(self, config: Config, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features_BD: Tensor) -> Tensor:
        """Logits [B]."""
        return self.linear(features_BD.float()).squeeze(-1)
