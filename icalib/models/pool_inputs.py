"""Encoder inputs of pools, and the pairs that each input contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from icalib.data.encoding import Encoded, Intents, Layout, TokenPool


@dataclass(frozen=True)
class PoolInputs:
    """Inputs of all candidates of some pools: one per candidate, or one per pool.

    Pairs are in the order of pools and candidates; input i has the pairs `bounds[i]:bounds[i + 1]`.
    """

    inputs: list[Encoded]
    bounds: list[int]

    @classmethod
    def of(cls, pools: Sequence[TokenPool], layout: Layout, intents: Sequence[Intents] | None) -> PoolInputs:
        """Build the inputs of pools; with the `intents` of their utterances, in the intent view."""
        inputs: list[Encoded] = []
        bounds = [0]
        for index, pool in enumerate(pools):
            encoded = layout.inputs(pool.context, intents[index] if intents is not None else None, pool.candidates)
            inputs += encoded
            pairs_per_input = len(pool.candidates) // len(encoded)
            bounds += [bounds[-1] + pairs_per_input * count for count in range(1, len(encoded) + 1)]
        return cls(inputs, bounds)

    @property
    def num_pairs(self) -> int:
        """Number of pairs, N."""
        return self.bounds[-1]

    def pairs(self, batch: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the indices of the pairs of some inputs, in the inputs' order."""
        return np.concatenate([np.arange(self.bounds[index], self.bounds[index + 1]) for index in batch])
