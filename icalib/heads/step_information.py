"""What training steps contribute to a Laplace posterior."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from icalib.core.errors import PosteriorError


class StepInformation(nn.Module):
    """The information of an epoch's steps over all processes, saved with the weights; `momentum` is α."""

    moving_LL: Tensor
    num_pairs: Tensor
    num_steps: Tensor

    def __init__(self, num_features: int, momentum: float) -> None:
        super().__init__()
        self._momentum = momentum
        self.register_buffer("moving_LL", torch.zeros(num_features, num_features, dtype=torch.float64))
        self.register_buffer("num_pairs", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("num_steps", torch.zeros(1, dtype=torch.int64))

    def reset(self) -> None:
        """Reset to zero."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def add(self, step_LL: Tensor, num_pairs: int) -> None:
        """Add a step's Σ wφφᵀ, summed over processes; every process must call it, with 0 pairs if it has none."""
        pairs = torch.full_like(self.num_pairs, num_pairs)
        if dist.is_initialized():
            dist.all_reduce(step_LL)
            dist.all_reduce(pairs)
        counts = pairs > 0  # stays on the device: reading it would wait for the update
        # P̄ ← αP̄ + (1 − α)(1/M) Σ wφφᵀ over a step's M pairs: GPF-BERT Eq. 5 with the mean of SNGP's code
        weight = (1 - self._momentum) * counts.to(self.moving_LL.dtype)
        self.moving_LL.lerp_(step_LL / pairs.clamp(min=1), weight)
        self.num_pairs += pairs
        self.num_steps += counts

    def total(self) -> tuple[Tensor, int]:
        """Return the epoch's Σ wφφᵀ [L, L] and its number of pairs."""
        num_pairs, num_steps = int(self.num_pairs), int(self.num_steps)
        if not num_steps:
            raise PosteriorError(
                "head.laplace computes the precision from the last epoch's training steps, and these weights had no "
                "step. Train them, or set head.laplace=exact."
            )
        return self.moving_LL * (num_pairs / (1 - self._momentum**num_steps)), num_pairs  # it started from 0
