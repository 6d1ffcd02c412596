from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.encoders.sam import SAM, SemanticFeatures, SimilarityFeatures
from icalib.encoders.transformer import Batch
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker, make_batch
from icalib.training.optimizer import parameter_groups
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")
Pair = tuple[list[list[int]], list[int]]
PAIRS: list[Pair] = [
    ([[10, 11, 12], [20, 21], [30, 31, 32, 33]], [40, 41, 42]),
    ([[50, 51]], [60]),
    ([[70, 71, 72, 73, 74, 75], [80]], [90, 91, 92, 93, 94]),
]


def ranker(backbone: Path, **changes: Any) -> Ranker:
    settings = {"backbone": str(backbone), "budget": BUDGET, "matching_size": 8, **changes}
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=SAM.Config.model_validate(settings), similarity_start="none")).eval()


def batch(made: Ranker, pairs: list[Pair]) -> Batch:
    form = made.layout
    turns = [[np.array(turn, np.int32) for turn in context] for context, _ in pairs]
    candidates = [np.array(candidate, np.int32) for _, candidate in pairs]
    encoded = [form.pair(form.context_ids(t, None), c) for t, c in zip(turns, candidates, strict=True)]
    return make_batch(encoded, form, CPU)


def features(made: Ranker, pairs: list[Pair]) -> Tensor:
    with torch.inference_mode():
        return made.encoder(batch(made, pairs)).features_BD


@pytest.mark.parametrize("backbone", ["tiny_bert", "tiny_roberta"])
def test_other_pairs_and_padding_change_nothing(backbone: str, request: pytest.FixtureRequest) -> None:
    made = ranker(request.getfixturevalue(backbone))
    together = features(made, PAIRS)
    assert together.shape == (3, made.encoder.width)
    for place, pair in enumerate(PAIRS):
        torch.testing.assert_close(features(made, [pair])[0], together[place], rtol=1e-4, atol=1e-5)


def test_without_similarity_features_it_is_a_hierarchical_bert(tiny_bert: Path) -> None:
    """A GRU over utterance vectors made of mean states; nothing compares words."""
    made = ranker(tiny_bert, similarity_features=False)
    encoder = made.encoder
    assert encoder.similarity is None
    (context, candidate), inputs = PAIRS[0], batch(made, PAIRS[:1])
    with torch.inference_mode():
        states = encoder.token_states(inputs)[0][0]
        starts = np.cumsum([1, *(len(turn) + 1 for turn in context)])
        spans = [states[s : s + len(text)].mean(0) for s, text in zip(starts, [*context, candidate], strict=True)]
        near = [torch.cosine_similarity(turn, spans[-1], dim=0)[None] for turn in spans[:-1]]
        joined = [torch.cat([turn, spans[-1], c, torch.zeros(1)]) for turn, c in zip(spans[:-1], near, strict=True)]
        outputs, _ = encoder.dialogue.read(torch.relu(encoder.semantic.join(torch.stack(joined))))
        expected = torch.tanh(encoder.dialogue.join(torch.cat([outputs[-1], outputs.amax(0)])))
    torch.testing.assert_close(features(made, PAIRS[:1])[0], expected)


def test_a_copy_of_an_utterance_is_as_near_as_can_be() -> None:
    """Equal states have cosine 1, above every other response; the similarity features of both sides agree."""
    torch.manual_seed(0)
    turn, mask = torch.randn(1, 1, 4, 16), torch.ones(1, 1, 4, dtype=torch.bool)
    semantic = SemanticFeatures(16, 8)
    seen: list[Tensor] = []
    semantic.join.register_forward_hook(lambda *call: seen.append(call[1][0]))
    for response in (turn, *torch.randn(20, 1, 1, 4, 16)):
        semantic(turn, mask, response, mask)
    cosines = torch.stack([joined[0, 0, -2] for joined in seen])
    assert cosines[0].item() == pytest.approx(1, abs=1e-6)
    assert cosines.argmax() == 0
    of_turn, of_response = SimilarityFeatures(16, 8)(turn, mask, turn, mask).chunk(2, 2)
    torch.testing.assert_close(of_turn, of_response)


def test_words_are_compared_with_what_they_attend_to_in_the_other_text() -> None:
    torch.manual_seed(0)
    layer = SimilarityFeatures(6, 4)
    turn, response = torch.randn(1, 1, 3, 6), torch.randn(1, 1, 5, 6)
    seen: list[Tensor] = []
    layer.compare.register_forward_hook(lambda *call: seen.append(call[1][0]))
    there = torch.tensor([True, True, True, False, False])
    layer(turn, torch.ones(1, 1, 3, dtype=torch.bool), response, there.expand(1, 1, 5))
    u, r = turn[0, 0], response[0, 0, :3]
    found = torch.nn.functional.scaled_dot_product_attention(u[None], r[None], r[None])[0]
    torch.testing.assert_close(seen[0][0, 0], torch.cat([u, found, u - found, u * found], 1))
    found = torch.nn.functional.scaled_dot_product_attention(r[None], u[None], u[None])[0]
    torch.testing.assert_close(seen[1][0, 0, :3], torch.cat([r, found, r - found, r * found], 1))


def test_a_context_without_words_leaves_finite_numbers(tiny_bert: Path) -> None:
    made = ranker(tiny_bert)
    pairs: list[Pair] = [([[], []], [40]), ([[10]], []), PAIRS[0]]
    assert torch.isfinite(features(made, pairs)).all()


def test_new_layers_learn_at_the_heads_rate_and_a_frozen_backbone_not_at_all(tiny_bert: Path) -> None:
    settings = TrainingSettings(learning_rate=2e-5, head_learning_rate=1e-3)
    for frozen in (False, True):
        made = ranker(tiny_bert, frozen_backbone=frozen)
        names = {id(parameter): name for name, parameter in made.named_parameters()}
        rates = {names[id(p)]: g["lr"] for g in parameter_groups(made, settings) for p in g["params"]}
        backbone = {name for name in names.values() if name.startswith("encoder.backbone.")}
        assert {name for name, rate in rates.items() if rate == 2e-5} == (set() if frozen else backbone)
        assert {name for name, rate in rates.items() if rate == 1e-3} == set(names.values()) - backbone


def test_frozen_layers_of_the_backbone_are_frozen(tiny_bert: Path) -> None:
    learnt = {name for name, weights in ranker(tiny_bert, frozen_layers=1).named_parameters() if weights.requires_grad}
    assert not [name for name in learnt if ".backbone.embeddings." in name or ".backbone.encoder.layer.0." in name]
    assert any(".backbone.encoder.layer.1." in name for name in learnt)


def test_post_training_is_that_of_the_plain_backbone(tiny_bert: Path) -> None:
    made = ranker(tiny_bert)
    plain = Ranker(RankerConfig(encoder=made.config.encoder.for_post_training())).encoder.state_dict()
    own = made.encoder.state_dict()
    assert plain.keys() == {name for name in own if name.startswith("backbone.")}
