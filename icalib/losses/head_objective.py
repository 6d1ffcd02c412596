"""For heads that bring their own training objective."""

from __future__ import annotations

from typing import final

from torch import Tensor

from icalib.core.errors import SettingError
from icalib.losses.binary import AbstractLoss


@final
class HeadObjective(AbstractLoss):
    """What the head says: e.g. the Pólya-Gamma head's evidence of a whole batch."""

    class Config(AbstractLoss.Config):
        """Settings of a head's own objective."""

        balanced: bool = True
        """Every batch has right and wrong pairs in the shares that training has, as a Gaussian process wants whose data
        set the batch is: one without a right pair teaches it little. False takes them as they come."""

    def __init__(self, config: Config) -> None:
        self.balanced = config.balanced

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """There is no loss of single pairs.

        Raises:
            SettingError: always; a head with an objective of its own never asks.
        """
        raise SettingError("HeadObjective goes only with a head that brings its own objective, e.g. PolyaGammaHead.")
