"""Pairs whose words are numbers, for encoders that tell turns apart."""

from __future__ import annotations

import numpy as np
import torch

from icalib.data.encoding import Layout
from icalib.encoders.transformer import Batch
from icalib.models.ranker import make_batch

Pair = tuple[list[list[int]], list[int]]
"""The words of each turn of a context, and those of a candidate."""

PAIRS: list[Pair] = [
    ([[10, 11, 12], [20, 21], [30, 31, 32, 33]], [40, 41, 42]),
    ([[50, 51]], [60]),
    ([[70, 71, 72, 73, 74, 75], [80]], [90, 91, 92, 93, 94]),
]


def pair_batch(layout: Layout, pairs: list[Pair]) -> Batch:
    """Return the pairs' inputs."""
    encoded = [
        layout.pair(
            layout.context_ids([np.array(turn, np.int32) for turn in context], None), np.array(candidate, np.int32)
        )
        for context, candidate in pairs
    ]
    return make_batch(encoded, layout, torch.device("cpu"))
