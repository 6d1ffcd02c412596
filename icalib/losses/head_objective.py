"""Placeholder loss for heads that define their training objective."""

from __future__ import annotations

from typing import final

from torch import Tensor
from typing_extensions import override

from icalib.core.combination import OWN_OBJECTIVE, Capabilities
from icalib.core.errors import SettingError
from icalib.losses.binary import AbstractLoss


@final
class HeadObjective(AbstractLoss):
    """The head's training objective, e.g. the evidence of a batch for the Pólya–Gamma head."""

    class Config(AbstractLoss.Config):
        """Settings of a head's objective."""

        @override
        def requires(self) -> Capabilities:
            return {OWN_OBJECTIVE}

    balanced = True  # to a Gaussian process the batch is the data set: without right pairs it learns little

    @override
    def __call__(self, logits_B: Tensor, labels_B: Tensor) -> Tensor:
        raise SettingError("HeadObjective works only with a head that defines its objective, e.g. PolyaGammaHead.")
