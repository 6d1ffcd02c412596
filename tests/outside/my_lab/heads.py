"""Heads of our own."""

from __future__ import annotations

from typing import final

from pydantic import Field
from torch import Tensor, nn

from icalib.heads.head import AbstractHead


@final
class MLPHead(AbstractHead):
    """f = m + wᵀ gelu(Vh + c): one hidden layer instead of a linear map."""

    class Config(AbstractHead.Config):
        """Settings of the hidden layer."""

        hidden_size: int = Field(default=64, ge=1)
        """Width of the hidden layer."""

    def __init__(self, config: Config, *, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, 1)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Logits [B]."""
        return mean_B + self.output(nn.functional.gelu(self.hidden(features_BD))).squeeze(-1)
