from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers.tiny_models import BUDGET
from helpers.word_pairs import PAIRS, Pair, pair_batch
from torch import Tensor

from icalib.encoders.sam import SAM, SimilarityFeatures
from icalib.encoders.transformer import Batch
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker
from icalib.training.local_engine import parameter_groups
from icalib.training.settings import TrainingSettings


def ranker(backbone: Path, **changes: Any) -> Ranker:
    settings = {"backbone": str(backbone), "budget": BUDGET, "matching_size": 8, **changes}
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=SAM.Config.model_validate(settings))).eval()


def batch(made: Ranker, pairs: list[Pair]) -> Batch:
    return pair_batch(made.layout, pairs)


def features(made: Ranker, pairs: list[Pair]) -> Tensor:
    with torch.inference_mode():
        return made.encoder(batch(made, pairs)).features_BD


def test_limit_without_similarity_features_it_is_a_hierarchical_bert(tiny_bert: Path) -> None:
    """A GRU over utterance vectors made of mean states; nothing compares words."""
    made = ranker(tiny_bert)
    encoder = made.encoder
    encoder.similarity.register_forward_hook(lambda *call: torch.zeros_like(call[2]))
    (context, candidate), inputs = PAIRS[0], batch(made, PAIRS[:1])
    with torch.inference_mode():
        states = encoder.token_states(inputs)[0][0]
        starts = np.cumsum([1, *(len(turn) + 1 for turn in context)])
        spans = [states[s : s + len(text)].mean(0) for s, text in zip(starts, [*context, candidate], strict=True)]
        near = [torch.cosine_similarity(turn, spans[-1], dim=0)[None] for turn in spans[:-1]]
        joined = [torch.cat([turn, spans[-1], c, torch.zeros(1)]) for turn, c in zip(spans[:-1], near, strict=True)]
        semantic = torch.relu(encoder.semantic.join(torch.stack(joined)))
        outputs, _ = encoder.dialogue.read(torch.cat([semantic, torch.zeros(len(semantic), 16)], 1))
        expected = torch.tanh(encoder.dialogue.join(torch.cat([outputs[-1], outputs.amax(0)])))
    torch.testing.assert_close(features(made, PAIRS[:1])[0], expected)


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


def test_new_layers_learn_at_the_heads_rate(tiny_bert: Path) -> None:
    settings = TrainingSettings(learning_rate=2e-5, head_learning_rate=1e-3)
    made = ranker(tiny_bert)
    names = {id(parameter): name for name, parameter in made.named_parameters()}
    rates = {names[id(p)]: g["lr"] for g in parameter_groups(made, settings) for p in g["params"]}
    assert rates == {name: 2e-5 if name.startswith("encoder.backbone.") else 1e-3 for name in names.values()}
