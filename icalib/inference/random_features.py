"""Random features of the radial basis function kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def random_features(x_BD: Tensor, frequencies_LD: Tensor, phases_L: Tensor) -> Tensor:
    """Return φ(x) = √(2/L) cos(Wx + b) [B, L] (Rahimi & Recht 2007, algorithm 1; GPF-BERT Eq. 2).

    With W ~ N(0, 1/ℓ²) and b ~ U(0, 2π), φ(x)ᵀφ(x') is exp(−‖x − x'‖²/2ℓ²) to O(1/√L).
    """
    return math.sqrt(2 / len(phases_L)) * torch.cos(torch.nn.functional.linear(x_BD, frequencies_LD, phases_L))
