"""Dropout with cheap random numbers on a CPU; other devices use torch's.

torch draws a float for every element in a single thread: a third of a forward pass of six layers. Here four elements
share one 64-bit draw of torch's generator's seed: an element is dropped if its 16 bits are below p · 2¹⁶ (an error of p
below 1/2¹⁷; the scale is that of the rate that is met). A mask is an integer of the width of the elements, 0 or 1: its
product with their bits, read as integers, is exact and needs no conversions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from typing_extensions import override

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of the width of a floating-point number, by bytes."""


def threshold(p: float) -> int:
    """Return how many of the 2¹⁶ numbers drop an element; below p = 1, at least one doesn't."""
    return 2**16 if p >= 1.0 else min(round(p * 2**16), 2**16 - 1)


def scale_of(p: float) -> float:
    """Return 1 / (1 − rate) for the rate that is met at p, and 0 if everything is dropped."""
    kept = 2**16 - threshold(p)
    return 2**16 / kept if kept else 0.0


def draw_mask(shape: torch.Size, dtype: torch.dtype, p: float) -> Tensor:
    """Draw a mask for a tensor of this shape and dtype: integers as wide as its elements, 1 where one is kept."""
    if threshold(p) == 2**16:
        return torch.zeros(shape, dtype=_INTEGERS[dtype.itemsize])
    num = shape.numel()
    # numpy's generator draws in half of torch's time; torch's generator seeds it.
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, ())))
    bits = torch.from_numpy(generator.random_raw((num + 3) // 4).view(np.int16)[:num]).view(shape)
    mask = bits if dtype.itemsize == 2 else torch.empty(shape, dtype=_INTEGERS[dtype.itemsize])
    return torch.ge(bits, threshold(p) - 2**15, out=mask)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return x with zeros where its mask (`draw_mask`) is 0."""
    return (x.view(mask.dtype) * mask).view(x.dtype)


def mask_in_place(x: Tensor, mask: Tensor) -> Tensor:
    """Set x to zero where its mask (`draw_mask`) is 0."""
    x.view(mask.dtype).mul_(mask)
    return x


class _Dropout(Function):
    """Inverted dropout; backward needs the mask only."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = draw_mask(x.shape, x.dtype, p)
        ctx.save_for_backward(mask)
        ctx.p = p
        return masked(x, mask).mul_(scale_of(p))

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return masked(grads[0], mask).mul_(scale_of(ctx.p)), None


class Dropout(nn.Module):
    """A replacement for nn.Dropout."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements in training mode."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p, True)
        return _Dropout.apply(x, self.p)  # pyright: ignore[reportReturnType]


def replace_dropout(module: nn.Module) -> None:
    """Replace every nn.Dropout below a module."""
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(child.p))
        else:
            replace_dropout(child)
