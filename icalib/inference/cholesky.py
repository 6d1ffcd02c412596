"""Cholesky factors of matrices that rounding may have left a little indefinite."""

from __future__ import annotations

import torch
from torch import Tensor

from icalib.core.errors import IcalibError

GROWTH = 10.0
MAX_RAISES = 6


class NumericalError(IcalibError):
    """Values that a computation can't continue with: NaN, infinities, or a matrix far from positive definite."""


def safe_cholesky(matrix: Tensor, *, jitter: float) -> tuple[Tensor, int]:
    """Return lower Cholesky factors of symmetric positive matrices, and how many times jitter had to be raised.

    A matrix that fails gets `jitter` times its mean diagonal added to the diagonal, then ten times as much, and so on.
    A NumericalError says that a matrix isn't finite, or is far from positive definite.
    """
    size = matrix.shape[-1]
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    scale = matrix.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    factor, failed = _factor(matrix)
    added, num_raised = torch.zeros_like(scale), 0
    for step in range(MAX_RAISES):
        if not failed.any():
            return factor, num_raised
        num_raised += int(failed.sum())
        added = torch.where(failed, jitter * GROWTH**step * scale, added)
        factor, failed = _factor(matrix + added[..., None, None] * identity)
    if failed.any():
        raise NumericalError(
            f"{int(failed.sum())} of {failed.numel()} matrices of size {size} have no Cholesky factor, even with "
            f"{jitter * GROWTH ** (MAX_RAISES - 1):g} times their mean diagonal added: they hold NaN, or what they "
            "were computed from has diverged. Lower the learning rate, or the kernel's output scale if it is learned."
        )
    return factor, num_raised


def _factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    factor, info = torch.linalg.cholesky_ex(matrix)
    finite = factor.detach().diagonal(dim1=-2, dim2=-1).isfinite().all(-1)
    return factor, (info > 0) | ~finite
