from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF

from icalib.inference.laplace import random_features

WIDTH = 96


def draws(num_features: int, length_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    frequencies = torch.randn(num_features, WIDTH, generator=generator) / length_scale
    return frequencies, 2 * math.pi * torch.rand(num_features, generator=generator)


def normed_rows() -> torch.Tensor:
    """Rows at cosines from 1 to about 0, of squared length D as LayerNorm leaves them."""
    generator = torch.Generator().manual_seed(1)
    shared, own = torch.randn(1, WIDTH, generator=generator), torch.randn(12, WIDTH, generator=generator)
    return torch.nn.functional.layer_norm(shared + torch.linspace(0, 4, 12)[:, None] * own, [WIDTH])


@pytest.mark.parametrize("length_scale", [math.sqrt(WIDTH / 2), 2 * math.sqrt(WIDTH)])
def test_products_are_the_rbf_kernel(length_scale: float) -> None:
    x = normed_rows()
    phi = random_features(x, *draws(2048, length_scale))
    kernel = RBF(length_scale)(x.numpy())
    errors = (phi @ phi.T).numpy() - kernel
    assert np.sqrt((errors**2).mean()) < 0.02
    assert np.abs(errors).max() < 0.06
