from __future__ import annotations

import math

import torch

from icalib.losses.binary import BinaryCrossEntropy


def test_a_clipped_loss_has_no_gradient() -> None:
    logits = torch.tensor([-30.0, -2.0, 30.0], requires_grad=True)
    labels = torch.tensor([1, 1, 1])
    free = BinaryCrossEntropy.Config().build()(logits, labels)
    clipped = BinaryCrossEntropy.Config(max_loss=10.0).build()(logits, labels)
    assert free[0] > 29
    assert clipped[0] == 10
    assert torch.equal(clipped[1:], free[1:])
    clipped.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0] == 0
    assert logits.grad[1] < 0


def test_the_loss_is_the_cross_entropy_of_each_pair_and_stays_finite() -> None:
    logits, labels = torch.tensor([0.0, 2.0, 500.0, -500.0]), torch.tensor([1, 0, 0, 1])
    expected = [math.log(2), 2 + math.log1p(math.exp(-2)), 500, 500]
    torch.testing.assert_close(BinaryCrossEntropy.Config().build()(logits, labels), torch.tensor(expected))
