"""No encoder reads values back from the device, which would wait for all its work: tensors on `meta` have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.encoders.graph import GraphEncoder
from icalib.encoders.joint import JointEncoder
from icalib.encoders.transformer import AbstractEncoder, BackboneEncoder, Batch, TransformerEncoder
from icalib.encoders.turns import candidate_words, context_words
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker, make_batch

META = torch.device("meta")
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
    similarity = "both" if encoder is TransformerEncoder else "together"
    ranker = Ranker(RankerConfig(encoder=config, similarity_start=similarity)).eval()
    inputs = ranker.layout.inputs(CONTEXT, None, CANDIDATES)
    batch = make_batch(inputs, ranker.layout, torch.device("cpu"))
    ranker.to(META)
    with torch.inference_mode():
        assert len(ranker.similarities(batch.to(META))) == 2


def test_words_are_found_without_waiting_for_the_device(tiny_bert: Path) -> None:
    config = TransformerEncoder.Config(backbone=str(tiny_bert), budget=BUDGET, turn_separators=True)
    layout = Ranker(RankerConfig(encoder=config)).layout
    batch = make_batch(layout.inputs(CONTEXT, None, CANDIDATES), layout, torch.device("cpu"))
    for find in (context_words, candidate_words):
        on_cpu, on_device = find(batch, layout.separator), find(batch.to(META), layout.separator)
        assert on_device.mask_BTW.device == META
        assert on_device.positions_BTW.shape == on_cpu.positions_BTW.shape
