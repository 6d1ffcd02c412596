from __future__ import annotations

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
