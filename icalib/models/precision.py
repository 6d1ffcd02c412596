"""Precision and batching of forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from icalib.data.batching import ordered_batches

Precision = Literal["auto", "fp32", "bf16"]


_MAX_TOKENS_ON_CPU = 2048  # the states of more no longer fit its caches: a third slower, with more memory


def forward_batches(lengths: Sequence[int], max_tokens: int, device: torch.device) -> list[npt.NDArray[np.int64]]:
    """Places of the inputs of each batch of a pass without gradients; empty without inputs."""
    most = max_tokens if device.type != "cpu" else min(max_tokens, _MAX_TOKENS_ON_CPU)
    return ordered_batches(lengths, 256, most) if lengths else []


def resolve_precision(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """What `auto` means on a device: bf16 where it has instructions for it."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.backends.cpu.get_cpu_capability() == "AVX512" and cpu_computes_bf16() else "fp32"


def cpu_computes_bf16() -> bool:
    """Whether this CPU multiplies in bfloat16."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]


def autocast(device: torch.device, precision: Literal["fp32", "bf16"]) -> torch.autocast:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
