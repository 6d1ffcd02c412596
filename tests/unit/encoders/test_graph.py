from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import BUDGET
from torch import Tensor

from icalib.core.component import validated
from icalib.core.errors import SettingError
from icalib.encoders.graph import GraphEncoder, adjacency, utterance_nodes
from icalib.encoders.transformer import Encoded
from icalib.encoders.turns import turn_numbers
from icalib.models.config import RankerConfig
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


def by_hand(edges: list[list[int]], normalisation: str) -> Tensor:
    a = torch.tensor(edges, dtype=torch.float64)
    degree = a.sum(1)
    scale = torch.diag(degree.pow(-0.5))
    return torch.diag(1 / degree) @ a if normalisation == "random-walk" else scale @ a @ scale


@pytest.mark.parametrize("normalisation", ["random-walk", "symmetric"])
def test_adjacency_joins_neighbours_and_the_response_with_all(normalisation: str) -> None:
    made = adjacency(torch.tensor([2, 3, 1, 0]), 4, normalisation)  # type: ignore[arg-type]
    # node 0 is the response, the others are the turns in their order
    three = by_hand([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]], normalisation)
    torch.testing.assert_close(made[0, :3, :3], torch.full((3, 3), 1 / 3))  # two turns: everything is joined
    torch.testing.assert_close(made[1], three.float())
    torch.testing.assert_close(made[2, :2, :2], torch.full((2, 2), 0.5))
    assert made[3, 0, 0] == 1
    for place, nodes in enumerate((3, 4, 2, 1)):  # no edge to what isn't there
        assert made[place].abs().sum() == pytest.approx(made[place, :nodes, :nodes].abs().sum().item())


def test_rows_of_the_random_walk_sum_to_1_and_the_symmetric_matrix_is_symmetric() -> None:
    turns = torch.tensor([4, 1, 6])
    rows = adjacency(turns, 7, "random-walk").sum(2)
    there = torch.arange(7) <= turns[:, None]
    torch.testing.assert_close(rows, there.float())
    symmetric = adjacency(turns, 7, "symmetric")
    torch.testing.assert_close(symmetric, symmetric.transpose(1, 2))
    assert not torch.allclose(symmetric, adjacency(turns, 7, "random-walk"))


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
    encoder = ranker.encoder
    made = encoded(ranker, TURNS)
    layout = ranker.layout
    batch = make_batch([layout.pair(layout.context_ids(TURNS, None), CANDIDATE)], layout, CPU)
    edges = by_hand([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]], "random-walk").float()
    with torch.inference_mode():
        nodes = utterance_nodes(made.states_BLD, *turn_numbers(batch, layout.separator), num_nodes=len(TURNS) + 1)[0]
        for layer in encoder.graph_layers:
            nodes = nodes + (edges @ nodes @ layer.weight.T).clamp(min=0)
        peer = torch.nn.MultiheadAttention(32, 2, batch_first=True)
        attention = encoder.attention
        three = (attention.query, attention.key, attention.value)
        peer.in_proj_weight.data = torch.cat([layer.weight for layer in three])
        peer.in_proj_bias.data = torch.cat([layer.bias for layer in three])
        peer.out_proj.weight, peer.out_proj.bias = attention.output.weight, attention.output.bias
        states = made.states_BLD
        mixed = peer(states, states, states, need_weights=False)[0]
        sequence = attention.norm(states + mixed)[0, 0]
    expected = torch.cat([nodes[0], nodes.max(0).values, sequence])
    torch.testing.assert_close(made.features_BD[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_roberta"])
def test_neither_padding_nor_longer_dialogues_beside_it_change_a_pair(
    name: str, request: pytest.FixtureRequest
) -> None:
    ranker = graph(request.getfixturevalue(name))
    contexts = [TURNS[:1], TURNS, TURNS[1:]]
    alone = torch.cat([encoded(ranker, context).features_BD for context in contexts])
    torch.testing.assert_close(encoded(ranker, *contexts).features_BD, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("branches", "width"), [("both", 96), ("graph", 64), ("sequence", 32)])
def test_each_branch_works_alone(tiny_bert: Path, branches: str, width: int) -> None:
    ranker = graph(tiny_bert, branches=branches)
    assert encoded(ranker, TURNS).features_BD.shape == (1, width)
    assert ranker.encoder.width == width
    both = graph(tiny_bert)
    both.encoder.load_state_dict({**both.encoder.state_dict(), **ranker.encoder.state_dict()})
    whole = encoded(both, TURNS).features_BD
    part = {"both": whole, "graph": whole[:, :64], "sequence": whole[:, 64:]}[branches]
    torch.testing.assert_close(encoded(ranker, TURNS).features_BD, part)


def test_turns_are_always_separated() -> None:
    with pytest.raises(SettingError, match="turn_separators"):
        validated(GraphEncoder.Config, {"turn_separators": False})


def test_intents_are_read_from_token_states_whatever_the_features_width(tiny_bert: Path) -> None:
    config = GraphEncoder.Config.model_validate({"backbone": str(tiny_bert), "budget": BUDGET})
    ranker = Ranker(RankerConfig(encoder=config, intents=("asks", "thanks"))).eval()
    pair = ranker.layout.pair(ranker.layout.context_ids(TURNS, [(0,), (), ()]), CANDIDATE)
    assert ranker.intent_logits(make_batch([pair], ranker.layout, CPU)).shape == (1, 2)
