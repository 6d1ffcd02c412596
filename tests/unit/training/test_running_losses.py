from __future__ import annotations

import pytest
import torch

from icalib.core.errors import IcalibError
from icalib.training.loop import RunningLosses


class Unreadable(torch.Tensor):
    """A loss on a device that must not be waited for."""

    def __float__(self) -> float:
        raise AssertionError("read too early")


def loss(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_on_a_cpu_the_note_is_of_the_last_update() -> None:
    losses = RunningLosses(torch.device("cpu"))
    losses.add("answer", loss(1.0), 0)
    losses.add("answer", loss(2.0), 1)
    assert (losses.note("answer"), losses.note("intent")) == (", loss 1.500", "")
    assert losses.taken() == {"answer": [1.0, 2.0]}
    assert losses.taken() == {}


def test_elsewhere_losses_are_read_at_points_of_the_curve_only() -> None:
    losses = RunningLosses(torch.device("cuda"))
    losses.add("answer", loss(1.0).as_subclass(Unreadable), 0)
    assert losses.note("answer") == ""
    with pytest.raises(AssertionError, match="too early"):
        losses.taken()


def test_an_infinite_loss_is_named_with_its_update() -> None:
    infinite = loss(float("inf"))
    with pytest.raises(IcalibError, match="the loss is inf in update 8"):
        RunningLosses(torch.device("cpu")).add("answer", infinite, 7)
    losses = RunningLosses(torch.device("cuda"))
    losses.add("answer", infinite, 7)
    with pytest.raises(IcalibError, match="the loss is inf in update 8"):
        losses.taken()
