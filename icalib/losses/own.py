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
        """The head's own objective has no settings."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        """There is no loss of single pairs.

        Raises:
            SettingError: always; a head with an objective of its own never asks.
        """
        raise SettingError("HeadObjective goes only with a head that brings its own objective, e.g. PolyaGammaHead.")
