"""What an encoder reads of some pools, and which pairs each input is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from icalib.data.encoding import Encoded, Intents, Layout, TokenPool


@dataclass(frozen=True)
class PoolInputs:
    """Inputs of all candidates of some pools: one each, or one for a whole pool.

    Pairs stand in the order of pools and candidates; those of input i are `bounds[i]:bounds[i + 1]`.
    """

    inputs: list[Encoded]
    bounds: list[int]

    @classmethod
    def of(cls, pools: Sequence[TokenPool], layout: Layout, intents: Sequence[Intents] | None) -> PoolInputs:
        """The inputs of pools; with `intents`, those of each pool's utterances, in the intent view."""
        inputs: list[Encoded] = []
        bounds = [0]
        for place, pool in enumerate(pools):
            written = layout.inputs(pool.context, intents[place] if intents is not None else None, pool.candidates)
            inputs += written
            each = len(pool.candidates) // len(written)
            bounds += [bounds[-1] + each * number for number in range(1, len(written) + 1)]
        return cls(inputs, bounds)

    @property
    def num_pairs(self) -> int:
        """N."""
        return self.bounds[-1]

    def pairs(self, batch: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Places of the pairs of some inputs, in the inputs' order."""
        return np.concatenate([np.arange(self.bounds[place], self.bounds[place + 1]) for place in batch])
