"""gpytorch's kernels as a module whose parameters can be sharded."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

KernelName = Literal["rbf", "matern", "linear"]


class ScaledKernel(nn.Module):
    """σ² k(x/ℓ, x'/ℓ) with k gpytorch's RBF kernel, Matérn's with ν = 5/2, or the inner product.

    ln ℓ and ln σ² are kept here, as parameters if they are learnt: gpytorch calls its modules without the hooks by
    which DeepSpeed gathers sharded parameters.
    """

    log_length_scale: Tensor
    log_output_scale: Tensor

    def __init__(self, name: KernelName, *, length_scale: float, output_scale: float, learn: bool) -> None:
        super().__init__()
        self._name: KernelName = name
        for scale, value in (("log_length_scale", length_scale), ("log_output_scale", output_scale)):
            start = torch.tensor([math.log(value)])
            if learn:
                self.register_parameter(scale, nn.Parameter(start))
            else:
                self.register_buffer(scale, start, persistent=False)

    def forward(self, x_AD: Tensor, x_BD: Tensor) -> Tensor:
        """Return the kernel matrix [A, B]."""
        return self.with_scales(x_AD, x_BD, self.log_scales)

    @property
    def log_scales(self) -> Tensor:
        """(ln ℓ, ln σ²), [2]."""
        return torch.cat([self.log_length_scale, self.log_output_scale])

    def with_scales(self, x_AD: Tensor, x_BD: Tensor, log_scales: Tensor) -> Tensor:
        """Return the kernel matrix [A, B] for other scales (ln ℓ, ln σ²), without reading this module's."""
        length_scale, output_scale = log_scales.exp().split(1)
        unit = _unit_kernel(self._name, like=x_AD)
        return output_scale * unit(x_AD / length_scale, x_BD / length_scale).to_dense()

    def diagonal(self, x_BD: Tensor) -> Tensor:
        """Return the kernel of each point with itself [B]."""
        unit = _unit_kernel(self._name, like=x_BD)
        return self.log_output_scale.exp() * unit(x_BD / self.log_length_scale.exp(), diag=True)


def _unit_kernel(name: KernelName, *, like: Tensor) -> Any:
    with warnings.catch_warnings():
        # linear_operator compiles one of its functions by torch.jit.script when it is imported.
        warnings.filterwarnings("ignore", r"`torch\.jit\.script` is deprecated", DeprecationWarning)
        from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel

    if name == "linear":
        kernel = LinearKernel().initialize(variance=1.0)
    else:
        kernel = (RBFKernel() if name == "rbf" else MaternKernel(nu=2.5)).initialize(lengthscale=1.0)
    return kernel.to(like).requires_grad_(False)
