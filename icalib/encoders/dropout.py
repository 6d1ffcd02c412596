"""Dropout with cheap random numbers on a CPU.

torch draws a float for every element in a single thread; for a six-layer encoder that is a third of a forward pass.
Here four elements share one 64-bit draw: an element is dropped if its 16 bits, as a number, are below p · 2¹⁶, rounded.
The error of p is at most 1/2¹⁷, the others are scaled by the rate that is met, elements are independent, and masks
depend on torch's generator only. Other devices use torch's dropout, which is cheap there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

ATTENTION = "icalib_sdpa"
"""Name under which `attention` is registered with transformers."""


def cheap_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply inverted dropout to a tensor of any shape."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return nn.functional.dropout(x, p, True)
    num_dropped = round(p * 2**16)  # of the 2¹⁶ values of an element's bits
    if num_dropped == 2**16:
        return x * torch.zeros_like(x)
    num_draws = (x.numel() + 3) // 4
    bits = torch.empty(num_draws, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[: x.numel()]
    keep = bits.view(x.shape) >= num_dropped - 2**15
    return x * keep.to(x.dtype).mul_(2**16 / (2**16 - num_dropped))


class Dropout(nn.Module):
    """A replacement for nn.Dropout."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements in training mode."""
        return cheap_dropout(x, self.p, self.training)


def replace_dropout(module: nn.Module) -> None:
    """Replace every nn.Dropout below a module."""
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(child.p))
        else:
            replace_dropout(child)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute scaled dot-product attention [B, heads, L, D/heads] → [B, L, heads, D/heads] with dropout of weights.

    torch's implementation is used unless it would draw random numbers on a CPU.
    """
    if query.device.type != "cpu" or dropout == 0.0 or not module.training:
        p = dropout if module.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, dropout_p=p, scale=scaling
        )
        return mixed.transpose(1, 2).contiguous(), None
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2) * scale
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = cheap_dropout(scores.softmax(-1), dropout, True)
    return (weights.to(value.dtype) @ value).transpose(1, 2).contiguous(), None


def register_attention() -> None:
    """Register `attention` with transformers; its masks are those of SDPA."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
