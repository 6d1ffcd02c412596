from __future__ import annotations

import pytest
import torch

from icalib.inference.cholesky import NumericalError, safe_cholesky

POSITIVE = torch.tensor([[4.0, 2.0], [2.0, 3.0]])


def test_jitter_grows_until_it_is_enough_and_every_raise_counts() -> None:
    indefinite = torch.tensor([[1.0, 1.005], [1.005, 1.0]])
    factor, num_raised = safe_cholesky(indefinite, jitter=1e-4)
    assert num_raised == 3  # 1e-4, 1e-3, 1e-2
    assert torch.allclose(factor @ factor.mT, indefinite + 1e-2 * torch.eye(2), atol=1e-6)


@pytest.mark.parametrize("matrix", [torch.full((2, 2), float("nan")), -torch.eye(2)])
def test_indefinite_matrices_are_refused(matrix: torch.Tensor) -> None:
    with pytest.raises(NumericalError, match=r"1 of 2 matrices of size 2"):
        safe_cholesky(torch.stack([POSITIVE, matrix]), jitter=1e-4)
