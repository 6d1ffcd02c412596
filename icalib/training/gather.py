"""Gathering values from the workers of a training, without running what they send."""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad


def gather(value: Any, device: torch.device) -> list[Any]:
    """Return the values of all workers, in rank order: numbers, strings, bytes, tensors and containers of these.

    `all_gather_object` would unpickle whatever arrives, and nothing protects the ports of torch.distributed.
    """
    own_N = torch.frombuffer(bytearray(to_bytes(value)), dtype=torch.uint8).to(device)
    sizes = [int(size) for size in _gathered(torch.tensor([len(own_N)], device=device))]
    found = _gathered(pad(own_N, (0, max(sizes) - len(own_N))))
    return [from_bytes(value_N[:size].cpu().numpy().tobytes()) for value_N, size in zip(found, sizes, strict=True)]


def to_bytes(value: Any) -> bytes:
    """Return what is sent of a value."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Any:
    """Return the value that was sent, on the CPU; an UnpicklingError if it is of any other type."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)  # the sender's device may not be here


def _gathered(tensor: Tensor) -> list[Tensor]:
    tensors = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, tensor)
    return tensors
