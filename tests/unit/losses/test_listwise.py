from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from icalib.losses.listwise import PoolCrossEntropy

LOSS = PoolCrossEntropy.Config().build()
pools = st.lists(st.integers(1, 6).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))), min_size=1)


def made(pools: list[tuple[int, int]]) -> tuple[list[int], Tensor, Tensor]:
    """Sizes, random logits and one-hot labels of pools given by (size, place of the right one)."""
    sizes = [size for size, _ in pools]
    logits = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(len(pools)), dtype=torch.float64)
    labels = torch.cat([torch.eye(size)[right] for size, right in pools])
    return sizes, logits, labels


@given(pools)
def test_the_loss_is_cross_entropy_of_each_pool(pools: list[tuple[int, int]]) -> None:
    sizes, logits, labels = made(pools)
    parts = logits.split(sizes)
    expected = [cross_entropy(part[None], torch.tensor([right])) for part, (_, right) in zip(parts, pools, strict=True)]
    torch.testing.assert_close(LOSS.of_pools(sizes)(logits, labels), torch.stack(expected))


@given(pools)
def test_none_of_these_is_one_more_candidate_with_the_logit_zero(pools: list[tuple[int, int]]) -> None:
    sizes, logits, labels = made(pools)
    labels[: sizes[0]] = 0  # the first pool has no right candidate
    expected = [
        cross_entropy(torch.cat([part, torch.zeros(1)])[None], torch.tensor([right if number else len(part)]))
        for number, (part, (_, right)) in enumerate(zip(logits.split(sizes), pools, strict=True))
    ]
    torch.testing.assert_close(LOSS.of_pools(sizes, with_none=True)(logits, labels), torch.stack(expected))


def test_several_right_candidates_cost_their_mean() -> None:
    sizes = [4, 2]
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1.0, 0, 1, 0, 0, 1])
    losses = LOSS.of_pools(sizes)(logits, labels)
    target = torch.tensor([[0.5, 0, 0.5, 0]], dtype=torch.float64)
    expected = [cross_entropy(logits[None, :4], target), cross_entropy(logits[None, 4:], torch.tensor([1]))]
    torch.testing.assert_close(losses, torch.stack(expected))
    losses.sum().backward()
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())
