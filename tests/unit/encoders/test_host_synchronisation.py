"""No encoder reads values back from the device, which would wait for all its work: tensors on `meta` have none.

And the check of it, which tests of whole updates and scoring passes use, finds every way to wait.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.device import META, NoWaiting, Waits

from icalib.encoders.transfer import to_device

HERE, THERE = torch.arange(3), torch.empty(3, device=META)
WAYS_TO_WAIT: dict[str, Callable[[], object]] = {
    "item": lambda: THERE.sum().item(),
    "bool": lambda: bool(THERE[0] > 0),
    "nonzero": lambda: (THERE > 0).nonzero(),
    "mask as index": lambda: THERE[THERE > 0],
    "mask assigned to": lambda: THERE.index_put_((THERE > 0,), torch.zeros((), device=META)),
    "index on the CPU": lambda: THERE[HERE],
    "list as index": lambda: THERE[[0, 2]],
    "equal": lambda: torch.equal(THERE, THERE),
    "blocking copy": lambda: HERE.to(META),
    "tensor of values": lambda: torch.tensor([1.0, 2.0], device=META),
}


@pytest.mark.parametrize("name", WAYS_TO_WAIT)
def test_every_way_to_wait_is_found(name: str) -> None:
    with pytest.raises(Waits), NoWaiting():
        WAYS_TO_WAIT[name]()


def test_copies_to_the_device_do_not_wait() -> None:
    with NoWaiting():
        assert to_device(HERE, META).device == META
