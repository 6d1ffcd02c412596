from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.encoders.graph import GraphEncoder, adjacency, utterance_nodes
from icalib.encoders.transformer import Encoded
from icalib.encoders.turns import turn_numbers
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker, make_batch

CPU = torch.device("cpu")
TURNS = [np.arange(10, 16, dtype=np.int32), np.arange(30, 32, dtype=np.int32), np.arange(34, 39, dtype=np.int32)]
CANDIDATE = np.arange(50, 54, dtype=np.int32)


def graph(backbone: Path, **encoder: object) -> Ranker:
    config = GraphEncoder.Config.model_validate({"backbone": str(backbone), "budget": BUDGET, **encoder})
    torch.manual_seed(0)
    return Ranker(RankerConfig(encoder=config)).eval()


def encoded(ranker: Ranker, *contexts: list[np.ndarray]) -> Encoded:
    pairs = [ranker.layout.pair(ranker.layout.context_ids(context, None), CANDIDATE) for context in contexts]
    with torch.inference_mode():
        return ranker.encoder(make_batch(pairs, ranker.layout, CPU))


def by_hand(edges: list[list[int]]) -> Tensor:
    a = torch.tensor(edges, dtype=torch.float64)
    return torch.diag(1 / a.sum(1)) @ a


def test_adjacency_joins_neighbours_and_the_response_with_all() -> None:
    made = adjacency(torch.tensor([2, 3, 1, 0]), 4)
    # node 0 is the response, the others are the turns in their order
    three = [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]]
    for place, edges in enumerate(([[1] * 3] * 3, three, [[1] * 2] * 2, [[1]])):
        expected = torch.zeros(4, 4)  # no edge to what isn't there
        expected[: len(edges), : len(edges)] = by_hand(edges)
        torch.testing.assert_close(made[place], expected)


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_nodes_are_mean_states_of_the_response_and_the_turns(name: str, request: pytest.FixtureRequest) -> None:
    ranker = graph(request.getfixturevalue(name))
    layout = ranker.layout
    pairs = [layout.pair(layout.context_ids(context, None), CANDIDATE) for context in (TURNS, TURNS[:1])]
    batch = make_batch(pairs, layout, CPU)
    with torch.inference_mode():
        states = ranker.encoder.token_states(batch)[0]
    nodes = utterance_nodes(states, *turn_numbers(batch, layout.separator), num_nodes=len(TURNS) + 1)
    ids = batch.ids_BL[0].tolist()
    for node, words in enumerate((CANDIDATE, *TURNS)):
        first = ids.index(int(words[0]))
        torch.testing.assert_close(nodes[0, node], states[0, first : first + len(words)].mean(0))
    assert not nodes[1, 2:].any()


def test_features_are_the_response_the_largest_and_the_attended_cls(tiny_bert: Path) -> None:
    ranker = graph(tiny_bert)
    encoder, layout = ranker.encoder, ranker.layout
    batch = make_batch([layout.pair(layout.context_ids(TURNS, None), CANDIDATE)], layout, CPU)
    edges = by_hand([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]]).float()
    with torch.inference_mode():
        made = encoder(batch)
        states = made.states_BLD
        nodes = utterance_nodes(states, *turn_numbers(batch, layout.separator), num_nodes=len(TURNS) + 1)[0]
        for layer in encoder.graph_layers:
            nodes = nodes + (edges @ nodes @ layer.weight.T).clamp(min=0)
        peer = torch.nn.MultiheadAttention(32, 2, batch_first=True)
        attention = encoder.attention
        three = (attention.query, attention.key, attention.value)
        peer.in_proj_weight.data = torch.cat([layer.weight for layer in three])
        peer.in_proj_bias.data = torch.cat([layer.bias for layer in three])
        peer.out_proj.weight, peer.out_proj.bias = attention.output.weight, attention.output.bias
        mixed = peer(states, states, states, need_weights=False)[0]
        sequence = attention.norm(states + mixed)[0, 0]
    expected = torch.cat([nodes[0], nodes.max(0).values, sequence])
    torch.testing.assert_close(made.features_BD[0], expected, rtol=1e-5, atol=1e-6)
