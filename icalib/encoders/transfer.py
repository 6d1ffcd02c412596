"""Copies to a device that neither the CPU nor the device waits for."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting for the work that is queued there.

    A GPU copies from pinned memory while the CPU continues; from other memory, a copy waits for everything before it.
    torch keeps pinned memory for reuse, and doesn't reuse it before the copy is done.
    """
    if tensor.device.type != "cpu":
        return tensor.to(device)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
