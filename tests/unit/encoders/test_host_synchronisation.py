"""No encoder reads values back from the device, which would wait for all its work: tensors on `meta` have none.

And the check of it, which tests of whole updates and scoring passes use, finds every way to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.device import META, NoWaiting, Waits
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.encoders.graph import GraphEncoder
from icalib.encoders.joint import JointEncoder
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import AbstractEncoder, BackboneEncoder, Batch, TransformerEncoder
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker, make_batch

CONTEXT = [np.arange(10, 22, dtype=np.int32), np.arange(30, 33, dtype=np.int32)]
CANDIDATES = [np.arange(40, 45, dtype=np.int32), np.arange(50, 59, dtype=np.int32)]


@pytest.mark.parametrize("encoder", [TransformerEncoder, JointEncoder, GraphEncoder])
def test_forward_passes_do_not_wait_for_the_device(
    encoder: type[AbstractEncoder], tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token_states(self: BackboneEncoder, batch: Batch) -> tuple[Tensor, Tensor]:
        return torch.empty(*batch.ids_BL.shape, self.state_width, device=META), batch.ids_BL > 0

    monkeypatch.setattr(BackboneEncoder, "token_states", token_states)
    config = encoder.Config.model_validate({"backbone": str(tiny_bert), "budget": BUDGET})
    ranker = Ranker(RankerConfig(encoder=config)).eval()
    inputs = ranker.layout.inputs(CONTEXT, None, CANDIDATES)
    batch = make_batch(inputs, ranker.layout, torch.device("cpu"))
    ranker.to(META)
    with torch.inference_mode(), NoWaiting():
        assert len(ranker.encoder(batch.to(META)).features_BD) == 2


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
