"""The linear head."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn
from typing_extensions import override

from icalib.heads.head import AbstractHead


@final
class LinearHead(AbstractHead):
    """f = wᵀh + b, added to the mean function."""

    class Config(AbstractHead.Config):
        """A linear head has no settings."""

    def __init__(self, config: Config, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    @override
    def start_at_mean(self) -> None:
        nn.init.zeros_(self.linear.weight)

    @override
    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        return mean_B + self.linear(features_BD).squeeze(-1)
