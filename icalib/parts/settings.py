"""What the parts of a sum provide and require."""

from __future__ import annotations

from typing import final

from typing_extensions import override

from icalib.core.combination import BACKBONE, CROSS_ENCODER, EPOCHS, PAIR_PROBS, POOL_TEXTS, Capabilities, Combinable
from icalib.core.component import FINITE, Settings


class EarlierPart(Settings, Combinable):
    """Base of the settings of the parts that the cross-encoder corrects."""

    model_config = FINITE

    @override
    def requires(self) -> Capabilities:
        return {BACKBONE, PAIR_PROBS, POOL_TEXTS}


@final
class CrossEncoder(Combinable):
    """The part that encoder, head and loss are, which has no settings of its own."""

    @override
    def provides(self) -> Capabilities:
        return {CROSS_ENCODER}

    @override
    def requires(self) -> Capabilities:
        return {EPOCHS}
