from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker
from scipy.stats import ks_2samp
from torch import Tensor, nn

from icalib.encoders.attention import _Attention, attention  # pyright: ignore[reportPrivateUsage]
from icalib.encoders.dropout import Dropout, cheap_dropout, replace_dropout
from icalib.models.ranker import Ranker, make_batch

NUM = 400_003  # no multiple of four: draws are shared by four elements


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_the_others_scaled(p: float) -> None:
    torch.manual_seed(0)
    dropped = cheap_dropout(torch.ones(NUM), p, True)
    kept = dropped != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=5 * np.sqrt(p * (1 - p) / NUM))
    torch.testing.assert_close(dropped[kept], torch.full_like(dropped[kept], 1 / (1 - p)), rtol=2e-4, atol=0)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.999, 0.9999])
def test_outputs_have_their_input_as_mean(p: float) -> None:
    """Exactly: over all 2¹⁶ values that the bits of an element can have."""
    torch.manual_seed(0)
    dropped = cheap_dropout(torch.ones(NUM, dtype=torch.float64), p, True)
    scale = dropped.max().item()
    met = 1 - 1 / scale  # the rate that makes the mean 1
    assert met * 2**16 == pytest.approx(round(p * 2**16), abs=1e-6)


@pytest.mark.parametrize("p", [1 - 2**-18, 1.0])
def test_everything_is_dropped_at_rate_1_as_by_torch(p: float) -> None:
    x = torch.randn(1000, requires_grad=True)
    dropped = cheap_dropout(x, p, True)
    torch.testing.assert_close(dropped, nn.functional.dropout(x, 1.0, True))
    dropped.sum().backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_elements_are_dropped_independently_of_their_neighbours(p: float) -> None:
    torch.manual_seed(1)
    kept = (cheap_dropout(torch.ones(NUM), p, True) != 0).double().numpy()
    centred = (kept - kept.mean()) / kept.std()
    for lag in (1, 2, 3, 4, 5, 8, 64):
        assert abs((centred[:-lag] * centred[lag:]).mean()) < 5 / np.sqrt(NUM)
    counts = np.bincount(kept[: NUM // 4 * 4].reshape(-1, 4).sum(1).astype(int), minlength=5) / (NUM // 4)
    expected = [np.prod([1, *range(4, 4 - n, -1)]) / np.prod([1, *range(1, n + 1)]) for n in range(5)]
    expected = [c * (1 - p) ** n * p ** (4 - n) for n, c in enumerate(expected)]
    np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(0.25 / (NUM // 4)))


def test_masks_depend_on_torchs_generator_alone() -> None:
    masks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        masks.append(cheap_dropout(torch.ones(1000), 0.3, True))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_nothing_is_dropped_outside_training_or_at_rate_0() -> None:
    x = torch.randn(5, 7)
    assert cheap_dropout(x, 0.5, False) is x
    assert cheap_dropout(x, 0.0, True) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shape_and_precision_stay(dtype: torch.dtype) -> None:
    dropped = cheap_dropout(torch.ones(3, 5, 7, dtype=dtype), 0.4, True)
    assert (dropped.shape, dropped.dtype) == ((3, 5, 7), dtype)


def test_gradients_flow_through_kept_elements_only() -> None:
    x = torch.ones(1000, requires_grad=True)
    dropped = cheap_dropout(x, 0.25, True)
    dropped.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, dropped.detach())


def test_every_dropout_of_a_module_is_replaced() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2), nn.Sequential(nn.Dropout(0.3)))
    replace_dropout(module)
    assert [child.p for child in module.modules() if isinstance(child, Dropout)] == [0.2, 0.3]
    assert not any(isinstance(child, nn.Dropout) for child in module.modules())


@pytest.mark.parametrize("masked", [False, True])
def test_attention_with_dropout_has_torchs_attention_as_its_mean(masked: bool) -> None:
    torch.manual_seed(2)
    query, key, value = (torch.randn(1, 2, 6, 4).expand(3000, 2, 6, 4) for _ in range(3))
    mask = torch.tensor([True, True, True, True, False, False]).expand(3000, 1, 6, 6) if masked else None
    module = nn.Module().train()
    mean = attention(module, query, key, value, mask, dropout=0.2)[0].mean(0)
    exact = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
    torch.testing.assert_close(mean, exact[0], atol=0.06, rtol=0)
    torch.testing.assert_close(attention(module.eval(), query, key, value, mask, dropout=0.2)[0], exact)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_gradients_of_attention_are_exact(masked: bool, p: float) -> None:
    torch.manual_seed(3)
    inputs = [torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mask = torch.tensor([True, True, True, True, False]).expand(2, 1, 5, 5) if masked else None

    def mixed(*states: Tensor) -> Tensor:
        torch.manual_seed(4)
        return _Attention.apply(*states, mask, 0.4, p)  # pyright: ignore[reportReturnType]

    assert torch.autograd.gradcheck(mixed, inputs)
    if p == 0.0:
        exact = nn.functional.scaled_dot_product_attention(*inputs, attn_mask=mask, scale=0.4).transpose(1, 2)
        torch.testing.assert_close(mixed(*inputs), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [31, 32, 33])
def test_attention_drops_the_same_weights_with_and_without_gradients(dtype: torch.dtype, length: int) -> None:
    torch.manual_seed(5)
    inputs = [torch.randn(2, 2, length, 4).to(dtype).requires_grad_() for _ in range(3)]
    module = nn.Module().train()
    mixed: list[Tensor] = []
    for with_gradients in (True, False):
        torch.manual_seed(6)
        with torch.set_grad_enabled(with_gradients):
            query, key, value = inputs
            mixed.append(attention(module, query, key, value, None, dropout=0.2)[0])
    assert torch.equal(mixed[0], mixed[1])
    torch.manual_seed(7)
    query, key, value = inputs
    plain = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    unlikely_to_drop = attention(module, query, key, value, None, dropout=2**-18)[0]  # rounds to a rate of 0
    torch.testing.assert_close(unlikely_to_drop, plain, atol=0.03 if dtype is torch.bfloat16 else 1e-5, rtol=0)


def two_rankers(backbone: Path) -> tuple[Ranker, Ranker]:
    return tiny_ranker(backbone, dropout=0.2), tiny_ranker(backbone, dropout=0.2, cheap_dropout=False)


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_without_dropout_logits_are_those_of_torchs_attention(name: str, request: pytest.FixtureRequest) -> None:
    cheap, plain = two_rankers(request.getfixturevalue(name))
    layout = cheap.layout
    pairs = [layout.pair(np.arange(10, 10 + n, dtype=np.int32), np.arange(40, 50, dtype=np.int32)) for n in (2, 30)]
    batch = make_batch(pairs, layout, torch.device("cpu"))
    with torch.inference_mode():
        torch.testing.assert_close(cheap.answer_logits(batch), plain.answer_logits(batch), rtol=1e-6, atol=1e-7)


def test_with_dropout_logits_are_distributed_as_with_torchs(tiny_bert: Path) -> None:
    cheap, plain = two_rankers(tiny_bert)
    layout = cheap.layout
    pair = layout.pair(np.arange(10, 22, dtype=np.int32), np.arange(40, 46, dtype=np.int32))
    batch = make_batch([pair] * 1500, layout, torch.device("cpu"))  # each row has masks of its own
    samples = []
    with torch.inference_mode():
        for ranker in (cheap, plain):
            torch.manual_seed(5)
            samples.append(torch.cat([ranker.train().answer_logits(batch) for _ in range(2)]).double().numpy())
    ours, theirs = samples
    num = len(ours)
    assert abs(ours.mean() - theirs.mean()) < 4 * theirs.std() * np.sqrt(2 / num)
    assert ours.std() / theirs.std() == pytest.approx(1, abs=4 / np.sqrt(num))
    assert ks_2samp(ours, theirs).pvalue > 0.01
