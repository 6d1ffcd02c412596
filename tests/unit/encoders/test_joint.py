from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.core.errors import SettingError
from icalib.encoders.joint import JointEncoder
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker, make_batch

CPU = torch.device("cpu")
CONTEXT = [np.arange(10, 22, dtype=np.int32), np.arange(30, 33, dtype=np.int32)]
CANDIDATES = [np.arange(start, start + size, dtype=np.int32) for start, size in ((40, 5), (50, 1), (60, 9), (70, 3))]


def joint(backbone: Path, **encoder: object) -> Ranker:
    config = JointEncoder.Config.model_validate({"backbone": str(backbone), "budget": BUDGET, **encoder})
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=config, link="softmax")).eval()


def logits(ranker: Ranker, *pools: list[np.ndarray]) -> Tensor:
    inputs = [written for pool in pools for written in ranker.layout.inputs(CONTEXT, None, pool)]
    with torch.inference_mode():
        return ranker.answer_logits(make_batch(inputs, ranker.layout, CPU))


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_a_candidate_is_read_at_its_marker(name: str, request: pytest.FixtureRequest) -> None:
    ranker = joint(request.getfixturevalue(name))
    layout = ranker.layout
    ((ids, start),) = layout.inputs(CONTEXT, None, CANDIDATES)
    batch = make_batch([(ids, start)], layout, CPU)
    segments = {"token_type_ids": batch.segments_BL} if ranker.encoder.has_segments else {}
    with torch.inference_mode():
        states = ranker.encoder.backbone(input_ids=batch.ids_BL, **segments).last_hidden_state[0]
        expected = ranker.answer_head.linear(states[np.flatnonzero(ids == layout.first_intent)])[:, 0]
    torch.testing.assert_close(logits(ranker, CANDIDATES), expected, rtol=1e-5, atol=1e-6)


def test_identical_candidates_differ_by_their_position_alone_and_others_by_what_is_beside_them(tiny_bert: Path) -> None:
    ranker = joint(tiny_bert)
    same = [CANDIDATES[0]] * 3
    assert logits(ranker, same).std() > 0
    beside = [CANDIDATES[0], np.arange(80, 90, dtype=np.int32)]
    assert logits(ranker, CANDIDATES[:2])[0] != logits(ranker, beside)[0]
    with torch.no_grad():
        ranker.encoder.backbone.embeddings.position_embeddings.weight.zero_()
    torch.testing.assert_close(logits(ranker, same), logits(ranker, same)[[1, 2, 0]], rtol=1e-5, atol=1e-6)
    order = [2, 0, 3, 1]
    permuted = logits(ranker, [CANDIDATES[place] for place in order])
    torch.testing.assert_close(permuted, logits(ranker, CANDIDATES)[order], rtol=1e-5, atol=1e-6)


def test_intents_are_refused(tiny_bert: Path) -> None:
    config = JointEncoder.Config.model_validate({"backbone": str(tiny_bert), "budget": BUDGET})
    with pytest.raises(SettingError, match="learns no intents"):
        Ranker(RankerConfig(encoder=config, intents=("a",)))
