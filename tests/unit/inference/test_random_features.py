from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.gaussian_process.kernels import RBF

from icalib.inference.random_features import median_distance, random_features

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


def test_the_median_is_that_of_distances_between_different_rows() -> None:
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    repeated = torch.cat([x, x[:1]])
    distances = pdist(repeated.numpy())
    expected = np.sort(distances[distances > 1e-6])
    assert median_distance(repeated).item() == pytest.approx(expected[(len(expected) - 1) // 2], rel=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
def test_no_two_different_rows_have_no_median(rows: int) -> None:
    assert median_distance(torch.ones(rows, 4)).isnan()
