from __future__ import annotations

import pytest
import torch

from icalib.inference.cholesky import NumericalError, safe_cholesky

POSITIVE = torch.tensor([[4.0, 2.0], [2.0, 3.0]])
SINGULAR = torch.tensor([[1.0, 1.0], [1.0, 1.0 - 1e-6]])


def test_positive_matrices_are_factored_without_jitter() -> None:
    factor, num_raised = safe_cholesky(POSITIVE, jitter=1e-4)
    assert num_raised == 0
    assert torch.allclose(factor @ factor.mT, POSITIVE)
    assert torch.equal(factor, factor.tril())


def test_only_the_matrix_that_fails_gets_jitter() -> None:
    factors, num_raised = safe_cholesky(torch.stack([POSITIVE, SINGULAR]), jitter=1e-4)
    assert num_raised == 1
    assert torch.equal(factors[0], safe_cholesky(POSITIVE, jitter=1e-4)[0])
    assert torch.allclose(factors[1] @ factors[1].mT, SINGULAR + 1e-4 * torch.eye(2), atol=1e-6)


def test_jitter_grows_until_it_is_enough_and_every_raise_counts() -> None:
    indefinite = torch.tensor([[1.0, 1.005], [1.005, 1.0]])
    factor, num_raised = safe_cholesky(indefinite, jitter=1e-4)
    assert num_raised == 3  # 1e-4, 1e-3, 1e-2
    assert torch.allclose(factor @ factor.mT, indefinite + 1e-2 * torch.eye(2), atol=1e-6)


def test_gradients_pass_through_raised_matrices() -> None:
    matrices = torch.stack([POSITIVE, SINGULAR]).requires_grad_()
    factors, _ = safe_cholesky(matrices, jitter=1e-4)
    factors.square().sum().backward()
    assert matrices.grad is not None
    assert matrices.grad.isfinite().all()


@pytest.mark.parametrize("matrix", [torch.full((2, 2), float("nan")), -torch.eye(2)])
def test_indefinite_matrices_are_refused(matrix: torch.Tensor) -> None:
    with pytest.raises(NumericalError, match=r"1 of 2 matrices of size 2"):
        safe_cholesky(torch.stack([POSITIVE, matrix]), jitter=1e-4)
