from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny_ranker
from scipy.stats import binom, ks_2samp
from torch import Tensor, nn

from icalib.encoders.attention import _Attention  # pyright: ignore[reportPrivateUsage]
from icalib.encoders.dropout import Dropout
from icalib.models.ranker import make_batch

NUM = 400_003  # no multiple of four: draws are shared by four elements


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_the_others_scaled(p: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(NUM, requires_grad=True)
    dropped = Dropout(p)(ones)
    kept = dropped != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=5 * np.sqrt(p * (1 - p) / NUM))
    torch.testing.assert_close(dropped[kept], torch.full_like(dropped[kept], 1 / (1 - p)), rtol=2e-4, atol=0)
    dropped.sum().backward()
    assert ones.grad is not None
    assert torch.equal(ones.grad, dropped.detach())


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_elements_are_dropped_independently_of_their_neighbours(p: float) -> None:
    torch.manual_seed(1)
    kept = (Dropout(p)(torch.ones(NUM)) != 0).double().numpy()
    centred = (kept - kept.mean()) / kept.std()
    for lag in (1, 2, 3, 4, 5, 8, 64):
        assert abs((centred[:-lag] * centred[lag:]).mean()) < 5 / np.sqrt(NUM)
    counts = np.bincount(kept[: NUM // 4 * 4].reshape(-1, 4).sum(1).astype(int), minlength=5) / (NUM // 4)
    np.testing.assert_allclose(counts, binom.pmf(np.arange(5), 4, 1 - p), atol=5 * np.sqrt(0.25 / (NUM // 4)))


def test_masks_depend_on_torchs_generator_alone_and_nothing_else_changes() -> None:
    x = torch.ones(3, 5, 70, dtype=torch.bfloat16)
    masked = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        masked.append(Dropout(0.3)(x))
    assert torch.equal(masked[0], masked[1])
    assert not torch.equal(masked[0], masked[2])
    assert (masked[0].shape, masked[0].dtype) == (x.shape, x.dtype)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize(("masked", "p"), [(False, 0.0), (True, 0.0), (True, 0.3), (False, 1.0)])
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


def test_with_dropout_logits_are_distributed_as_with_torchs(tiny_bert: Path) -> None:
    samples = []
    for cheap in (True, False):
        ranker = tiny_ranker(tiny_bert, dropout=0.2, cheap_dropout=cheap).train()
        pair = ranker.layout.pair(np.arange(10, 22, dtype=np.int32), np.arange(40, 46, dtype=np.int32))
        batch = make_batch([pair] * 1500, ranker.layout, torch.device("cpu"))  # each row has masks of its own
        torch.manual_seed(5)
        with torch.inference_mode():
            samples.append(ranker.answer_logits(batch).double().numpy())
    ours, theirs = samples
    assert abs(ours.mean() - theirs.mean()) < 4 * theirs.std() * np.sqrt(2 / len(ours))
    assert ours.std() / theirs.std() == pytest.approx(1, abs=4 / np.sqrt(len(ours)))
    assert ks_2samp(ours, theirs).pvalue > 0.01
