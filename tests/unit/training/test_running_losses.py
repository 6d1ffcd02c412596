from __future__ import annotations

import pytest
import torch

from icalib.core.errors import IcalibError
from icalib.training.loop import RunningLosses


class Unreadable(torch.Tensor):
    """A loss on a device that must not be waited for."""

    def __float__(self) -> float:
        raise AssertionError("read too early")


def test_on_a_gpu_losses_are_read_at_points_of_the_curve_only() -> None:
    losses = RunningLosses(torch.device("cuda"))
    losses.add("answer", torch.tensor(1.0).as_subclass(Unreadable), 0)
    assert losses.note("answer") == ""
    with pytest.raises(AssertionError, match="too early"):
        losses.taken()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_infinite_loss_is_named_with_its_update(device: str) -> None:
    losses = RunningLosses(torch.device(device))

    def read() -> None:
        losses.add("answer", torch.tensor(float("inf")), 7)
        losses.taken()

    with pytest.raises(IcalibError, match="the loss is inf in update 8"):
        read()
