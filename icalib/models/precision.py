"""Precision and batching of forward passes."""

from __future__ import annotations

import os
from typing import Literal

import torch
from torch import nn

from icalib.encoders.transformer import BackboneEncoder

Precision = Literal["auto", "fp32", "bf16"]

# Kernels that oneDNN and ideep keep for each shape of a bf16 product. With their default of 1024, scoring MiniLM took
# 2.6 GiB of memory instead of 0.7 after 1,500 batches, and more time.
for _cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_cache, "32")


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


def round_linear_layers(encoder: nn.Module, precision: Precision, device: torch.device) -> None:
    """In bf16, hold the weights of a backbone's linear layers as bfloat16."""
    if resolve_precision(precision, device) == "bf16" and isinstance(encoder, BackboneEncoder):
        for layer in encoder.backbone.modules():
            if type(layer) is nn.Linear:  # not a layer with a bound, whose weight is computed in float32
                layer.to(torch.bfloat16)


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return a context manager that autocasts to bfloat16 if that is the precision, or what `auto` stands for here."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=resolve_precision(precision, device) == "bf16")
