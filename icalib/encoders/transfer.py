"""Batches of passes without gradients, and copies to a device that neither the CPU nor the device waits for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icalib.data.batching import ordered_batches


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting for the work that is queued there.

    A GPU copies from pinned memory while the CPU continues; from other memory, a copy waits for everything before it.
    torch keeps pinned memory for reuse, and doesn't reuse it before the copy is done.
    """
    if tensor.device.type != "cpu":
        return tensor.to(device)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


_MAX_TOKENS_ON_CPU = 1024  # larger batches have more padding, and states that exceed the caches
_TOKENS_PER_BATCH = 128  # tokens of padding that take as long as another batch, on a CPU


def forward_batches(lengths: Sequence[int], max_tokens: int, device: torch.device) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the inputs in each batch of a pass without gradients; an empty list without inputs."""
    if not lengths:
        return []
    if device.type == "cpu":
        batches = ordered_batches(lengths, 256, min(max_tokens, _MAX_TOKENS_ON_CPU))
        return batches if len(batches) > 1 else _with_less_padding(batches[0], np.asarray(lengths))
    return ordered_batches(lengths, len(lengths), max_tokens)


def _with_less_padding(batch: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Return a batch of rising length, such as the texts of one question, in two where that is faster."""
    rising = lengths[batch]
    padded = rising * np.arange(1, len(batch) + 1) + rising[-1] * np.arange(len(batch) - 1, -1, -1)
    cut = int(padded.argmin()) + 1  # of the whole batch none is cut off
    if padded[cut - 1] + _TOKENS_PER_BATCH >= padded[-1]:
        return [batch]
    return [batch[:cut], batch[cut:]]
