"""Batches of passes without gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from icalib.data.batching import ordered_batches

_MAX_TOKENS_ON_CPU = 2048  # the states of larger batches exceed the caches: a third slower, and more memory


def forward_batches(lengths: Sequence[int], max_tokens: int, device: torch.device) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the inputs in each batch of a pass without gradients; an empty list without inputs."""
    limit = max_tokens if device.type != "cpu" else min(max_tokens, _MAX_TOKENS_ON_CPU)
    return ordered_batches(lengths, 256, limit) if lengths else []
