"""Precision and batching of forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from icalib.data.batching import ordered_batches

Precision = Literal["auto", "fp32", "bf16"]


_MAX_TOKENS_ON_CPU = 2048  # the states of larger batches exceed the caches: a third slower, and more memory


def forward_batches(lengths: Sequence[int], max_tokens: int, device: torch.device) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the inputs in each batch of a pass without gradients; an empty list without inputs."""
    limit = max_tokens if device.type != "cpu" else min(max_tokens, _MAX_TOKENS_ON_CPU)
    return ordered_batches(lengths, 256, limit) if lengths else []


def resolve_precision(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """Resolve `auto` on a device: bf16 if the hardware has instructions for it, else fp32."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.backends.cpu.get_cpu_capability() == "AVX512" and cpu_computes_bf16() else "fp32"


def cpu_computes_bf16() -> bool:
    """Return whether this CPU has instructions for bfloat16 products."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]


def autocast(device: torch.device, precision: Literal["fp32", "bf16"]) -> torch.autocast:
    """Return a context manager that autocasts to bfloat16 for `bf16` and does nothing for `fp32`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
