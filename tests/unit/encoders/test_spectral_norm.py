from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import tiny_ranker
from torch import Tensor, nn

from icalib.core.component import validated
from icalib.core.errors import SettingError
from icalib.encoders.spectral_norm import SpectralLinear, SpectralNorm, bound_layers, leading_singular_vectors, warm_up
from icalib.encoders.transformer import Batch


def layer(scale: float = 3.0, *, bound: float = 0.95, relative: bool = False) -> SpectralLinear:
    torch.manual_seed(0)
    plain = nn.Linear(12, 20)
    with torch.no_grad():
        plain.weight.mul_(scale / norm(plain.weight))
    return SpectralLinear(plain, bound=bound, relative=relative)


def norm(weight: Tensor) -> float:
    return torch.linalg.matrix_norm(weight.detach().double(), 2).item()


def train(module: nn.Module, steps: int = 150) -> None:
    """Towards a map far above every bound here in one direction; the learning rate falls to 0 as in a run."""
    optimizer = torch.optim.Adam(module.parameters())
    x = torch.randn(64, 12)
    y = x @ torch.outer(torch.randn(12), torch.randn(20))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 6e-2 * (1 - step / steps)
        optimizer.zero_grad()
        ((module.train()(x) - y) ** 2).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (1, 4), (4, 1)])
def test_leading_vectors_are_those_of_the_decomposition(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    u, v = leading_singular_vectors(weight)
    assert (u @ weight @ v).item() == pytest.approx(norm(weight), rel=1e-6)
    torch.testing.assert_close(weight @ v, norm(weight) * u)


@pytest.mark.parametrize(("norm_before", "factor"), [(0.2, 1.0), (0.94, 1.0), (3.0, 0.95 / 3.0)])
def test_only_a_layer_above_the_bound_is_scaled_to_it(norm_before: float, factor: float) -> None:
    bounded = layer(norm_before)
    for mode in (True, False):
        torch.testing.assert_close(bounded.train(mode).effective_weight(), bounded.weight * factor)


def test_after_training_the_norm_is_within_the_bound() -> None:
    bounded = layer(0.5)
    train(bounded)
    assert norm(bounded.weight) > 1.5  # the bound had work to do
    assert 0.9 < norm(bounded.eval().effective_weight()) <= 0.95 * (1 + 1e-3)


def test_a_relative_bound_counts_from_the_norm_at_the_start_also_after_loading() -> None:
    bounded = layer(4.0, bound=1.0, relative=True)
    assert torch.equal(bounded.eval().effective_weight(), bounded.weight)
    train(bounded)
    assert norm(bounded.weight) > 4.5
    loaded = layer(1.0, bound=1.0, relative=True)
    loaded.load_state_dict(bounded.state_dict())
    assert norm(loaded.eval().effective_weight()) == pytest.approx(4.0, rel=1e-3)
    assert torch.equal(loaded.effective_weight(), bounded.eval().effective_weight())


def test_the_gradient_passes_through_the_norm_and_not_through_its_vectors() -> None:
    bounded = layer(3.0).double().eval()
    u, v, x = bounded.u.clone(), bounded.v.clone(), torch.randn(4, 12, dtype=torch.float64)

    def output(weight: Tensor) -> Tensor:
        return (x @ weight.T * (0.95 / (u @ weight @ v))).sin().sum()

    (found,) = torch.autograd.grad((bounded(x) - bounded.bias).sin().sum(), bounded.weight)
    weight = bounded.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(output, weight)
    torch.testing.assert_close(found, torch.autograd.grad(output(weight), weight)[0])


def initial_norms(encoder: nn.Module) -> dict[str, float]:
    layers = encoder.backbone.named_modules()
    return {name: layer.initial_norm.item() for name, layer in layers if isinstance(layer, SpectralLinear)}


def test_a_relative_bound_of_1_leaves_a_pretrained_encoder_unchanged(tiny_bert: Path) -> None:
    ids = torch.arange(5, 25).reshape(2, 10)
    batch = Batch(ids, torch.zeros_like(ids), torch.tensor([10, 10]))
    plain, bounded, tight = (
        tiny_ranker(tiny_bert, spectral_norm=bound).encoder(batch).features_BD.detach()
        for bound in (
            None,
            {"scope": "all_linear", "relative": True, "bound": 1.0},
            {"scope": "all_linear", "bound": 0.01},
        )
    )
    torch.testing.assert_close(bounded, plain)
    assert not torch.allclose(tight, plain, atol=1e-2)


RELATIVE = {"scope": "ffn", "relative": True}


def test_bounds_of_loaded_weights_without_bounds_are_recomputed(tiny_bert: Path) -> None:
    bounded = tiny_ranker(tiny_bert, spectral_norm=RELATIVE)
    other = {name: 2 * tensor for name, tensor in tiny_ranker(tiny_bert).state_dict().items()}
    before = initial_norms(bounded.encoder)
    bounded.load_state_dict(other, strict=False)
    warm_up(bounded, other)
    after = initial_norms(bounded.encoder)
    assert after == pytest.approx({name: 2 * value for name, value in before.items()}, rel=1e-5)
    warm_up(bounded, bounded.state_dict())
    assert initial_norms(bounded.encoder) == after


def test_other_backbones_and_bounds_are_refused() -> None:
    with pytest.raises(SettingError, match="no linear layers in a stack"):
        bound_layers(nn.Sequential(nn.Linear(2, 2)), SpectralNorm())
    with pytest.raises(SettingError, match="bound"):
        validated(SpectralNorm, {"bound": 0})
