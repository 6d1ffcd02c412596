"""Linear layers with a bounded spectral norm, which preserves distances between inputs in the features (SNGP)."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from icalib.core.component import FINITE, Settings
from icalib.core.errors import SettingError

Scope = Literal["head", "ffn", "ffn+attention_output", "all_linear"]


class SpectralNorm(Settings):
    """Which linear layers of the encoder have a bounded spectral norm, and the bound."""

    model_config = FINITE

    scope: Scope = "ffn"
    """head: none of the encoder's; a Gaussian-process head bounds its dense layer (`head.spectral_bound`) in every
    scope. ffn: both feed-forward matrices of every layer; ffn+attention_output: also the attention's output projection
    (the widest scope of SNGP's code); all_linear: also query, key and value."""
    bound: float = Field(default=0.95, gt=0)
    """c: the largest spectral norm; matrices below it are unchanged."""
    relative: bool = False
    """Whether `bound` is in units of each matrix's initial norm. Pre-trained matrices have norms far above 1, so an
    absolute bound changes their outputs immediately; a relative bound of 1 only keeps them from growing."""


class SpectralLinear(nn.Linear):
    """A linear layer with effective weight W · min(1, c / σ̂), σ̂ the estimate of W's largest singular value.

    Spectral normalisation as SNGP has it (Liu et al. 2020; Miyato et al. 2018, algorithm 1): u and v start exact; each
    training forward makes one power iteration, evaluation none. Gradients pass through σ̂ = uᵀWv (float32) but not
    through u and v. Where several directions reach the bound at once it is exceeded, by about a tenth while the weights
    change fast, by 0.5 % once the learning rate is low.

    Args:
        plain: the layer whose parameters are shared, with the same names.
        bound: c, or ρ if `relative`; infinity for no bound.
        relative: c = ρ · ‖W(0)‖, with the norm of W at construction, which checkpoints store.
    """

    u: Tensor
    v: Tensor
    initial_norm: Tensor

    def __init__(self, plain: nn.Linear, *, bound: float, relative: bool = False) -> None:
        super().__init__(plain.in_features, plain.out_features, device="meta")
        self.weight, self.bias = plain.weight, plain.bias
        self._bound, self._relative = bound, relative
        device = plain.weight.device
        self.register_buffer("u", torch.zeros(plain.out_features, device=device))
        self.register_buffer("v", torch.zeros(plain.in_features, device=device))
        self.register_buffer("initial_norm", torch.zeros((), device=device))
        self.warm_up()

    @torch.no_grad()
    def warm_up(self) -> None:
        """Compute u, v and the initial norm of the current weights exactly, without power iterations."""
        u, v = leading_singular_vectors(self.weight)
        self.u.copy_(u)
        self.v.copy_(v)
        self.initial_norm.copy_(u @ self.weight @ v)

    def forward(self, input: Tensor) -> Tensor:
        """Return Wx + b with the effective W; the product is in autocast's precision."""
        return linear(input, self.effective_weight(), self.bias)

    def effective_weight(self) -> Tensor:
        """Return W · min(1, c / σ̂) [out, in], in float32."""
        with torch.autocast(self.weight.device.type, enabled=False):
            # Stochastic passes of a trained model also run in training mode and must not change it.
            if self.training and torch.is_grad_enabled():
                self._iterate()
            # Clones, because the next forward changes u and v in place.
            norm = self.u.clone() @ self.weight @ self.v.clone()
            bound = self._bound * self.initial_norm if self._relative else self._bound
            return self.weight / (norm / bound).clamp(min=1.0)

    @torch.no_grad()
    def _iterate(self) -> None:
        self.v.copy_(normalize(self.weight.T @ self.u, dim=0))
        self.u.copy_(normalize(self.weight @ self.v, dim=0))


def leading_singular_vectors(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return u [out] and v [in] of the largest singular value of W [out, in]: Wv = σu.

    Exact, from one eigenpair of a Gram matrix: 15 power iterations leave errors of up to a tenth on MiniLM's layers.
    """
    from scipy.linalg import eigh

    wide = weight if weight.shape[0] <= weight.shape[1] else weight.T
    gram = (wide.double() @ wide.double().T).cpu().numpy()
    _, vectors = eigh(gram, subset_by_index=[len(gram) - 1, len(gram) - 1])
    short = torch.from_numpy(vectors[:, 0]).to(weight)
    long = wide.T @ short
    u, v = (short, long) if wide is weight else (long, short)
    return normalize(u, dim=0), normalize(v, dim=0)


def bound_layers(backbone: nn.Module, norm: SpectralNorm) -> None:
    """Replace a backbone's linear layers by bounded ones that share their weights; SettingError if it has none."""
    chosen = _layers(backbone, norm.scope)
    if not chosen and norm.scope != "head":
        raise SettingError(
            f"spectral_norm.scope is {norm.scope}, but {type(backbone).__name__} has no linear layers in a stack. "
            "Leave spectral_norm out, or take another backbone, such as BERT."
        )
    for name, layer in chosen.items():
        backbone.set_submodule(name, SpectralLinear(layer, bound=norm.bound, relative=norm.relative))


def _layers(backbone: nn.Module, scope: Scope) -> dict[str, nn.Linear]:
    """Return the linear layers in the scope by name. Families name them differently, but in all of them layers are
    numbered, attention is called so, and its output is its last layer.
    """
    if scope == "head":
        return {}
    linear = {n: m for n, m in backbone.named_modules() if isinstance(m, nn.Linear) and re.search(r"\.\d+\.", n)}
    if scope == "all_linear":
        return linear
    attention = {name: found[0] for name in linear if (found := re.match(r".*?\.\w*att\w*(?=\.)", name))}
    outputs = {of: name for name, of in attention.items()}.values()
    left_out = set(attention) if scope == "ffn" else set(attention) - set(outputs)
    return {name: layer for name, layer in linear.items() if name not in left_out}


def warm_up(module: nn.Module, loaded: Container[str]) -> None:
    """Initialise the bounded layers whose `u` is not among the `loaded` tensors, from weights of a model without
    bounds.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, SpectralLinear) and f"{name}.u" not in loaded:
            layer.warm_up()
