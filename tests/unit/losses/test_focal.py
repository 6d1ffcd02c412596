from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from icalib.inference.focal import inverse_focal_logits
from icalib.losses.binary import BinaryCrossEntropy
from icalib.losses.focal import FocalLoss


def focal(gamma: float, logits: Tensor, labels: Tensor) -> Tensor:
    return FocalLoss.Config(gamma=gamma).build()(logits, labels)


def test_limit_gamma_0_is_the_binary_cross_entropy_to_the_last_bit() -> None:
    logits = torch.cat([torch.randn(500, generator=torch.Generator().manual_seed(0)) * 20, torch.tensor([0.0, 100.0])])
    labels = torch.arange(len(logits)) % 2
    found = []
    for loss in (FocalLoss.Config(gamma=0.0), BinaryCrossEntropy.Config()):
        f = logits.clone().requires_grad_()
        result = loss.build()(f, labels)
        found.append(torch.stack([result.detach(), *torch.autograd.grad(result.sum(), f)]))
    assert torch.equal(*found)


@pytest.mark.parametrize("gamma", [1.0, 2.5])
def test_it_is_the_printed_formula(gamma: float) -> None:
    logits = torch.linspace(-6, 6, 25, dtype=torch.float64)
    for label in (0, 1):
        p = torch.sigmoid(logits if label else -logits)
        found = focal(gamma, logits, torch.full((25,), label))
        torch.testing.assert_close(found, -((1 - p) ** gamma) * p.log())


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_the_gradient_is_that_of_finite_differences_and_finite_far_away(gamma: float) -> None:
    logits = torch.linspace(-8, 8, 23, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(23) % 2
    assert torch.autograd.gradcheck(lambda f: focal(gamma, f, labels), logits)
    far = torch.tensor([100.0, -100.0, 100.0, -100.0], requires_grad=True)
    loss = focal(gamma, far, torch.tensor([1, 1, 0, 0]))
    assert torch.isfinite(torch.autograd.grad(loss.sum(), far)[0]).all()
    torch.testing.assert_close(loss.detach(), torch.tensor([0.0, 100.0, 100.0, 0.0]))


def inverse_focal(prob: torch.Tensor, gamma: float) -> torch.Tensor:
    return torch.sigmoid(inverse_focal_logits(torch.logit(prob.double()), gamma))


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_the_inverse_in_logits_is_the_printed_one(gamma: float) -> None:
    p = np.linspace(0.02, 0.98, 49)

    def h(u: np.ndarray) -> np.ndarray:
        return u / ((1 - u) ** gamma - gamma * (1 - u) ** (gamma - 1) * u * np.log(u))

    np.testing.assert_allclose(inverse_focal(torch.from_numpy(p), gamma), h(p) / (h(p) + h(1 - p)), rtol=1e-12)
    assert inverse_focal(torch.tensor([0.0, 0.5, 1.0]), gamma).tolist() == [0.0, 0.5, 1.0]


@given(st.floats(-500, 500), st.floats(0.01, 1), st.floats(0, 5))
def test_the_inverse_keeps_the_order_and_is_odd_however_far(logit: float, step: float, gamma: float) -> None:
    low, high = inverse_focal_logits(torch.tensor([logit, logit + step], dtype=torch.float64), gamma)
    assert low < high
    torch.testing.assert_close(inverse_focal_logits(torch.tensor(-logit), gamma),
                               -inverse_focal_logits(torch.tensor(logit), gamma))  # fmt: skip
