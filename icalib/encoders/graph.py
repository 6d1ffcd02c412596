"""GRN: the utterances of a dialogue and the response as a graph, beside the sequence of their tokens."""

from __future__ import annotations

from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import one_hot, scaled_dot_product_attention
from typing_extensions import override

from icalib.encoders.architecture import dropout_of
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.dropout import Dropout
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import BackboneEncoder, Batch, Encoded
from icalib.encoders.turns import turn_numbers


@final
class GraphEncoder(BackboneEncoder):
    """Graph reasoning network over a backbone's token states (Liu et al. 2021).

    Features are [V_r ; max V ; s]: the response's node and the maximum over all nodes of the utterance dependency graph
    after its layers, and the state of [CLS] after one self-attention layer over the tokens. The paper's abstract
    describes the two branches; the graph's edges, pooling and widths are our interpretation, BERT instead of ALBERT is
    ICAST's.
    """

    class Config(BackboneEncoder.Config):
        """Settings of the graph reasoning network."""

        turn_separators: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]
        """Write a separator between the utterances of a context: it delimits the nodes."""
        graph_layers: int = Field(default=2, ge=0)
        """Layers V ← ReLU(ÂVW) + V."""

    def __init__(self, config: Config, *, num_intents: int, pretrained: bool = True) -> None:
        super().__init__(config, num_intents=num_intents, pretrained=pretrained)
        self._separator = Tokenizer(config.backbone).separator
        dropout = dropout_of(self.backbone.config)
        states = self.width
        self.graph_layers = nn.ModuleList(nn.Linear(states, states, bias=False) for _ in range(config.graph_layers))
        heads = int(self.backbone.config.num_attention_heads)
        self.attention = SelfAttention(states, heads, dropout)
        self.dropout = Dropout(dropout)
        self.width = 3 * states

    @override
    def forward(self, batch: Batch) -> Encoded:
        states_BLD, mask_BL = self.token_states(batch)
        vectors = [*self._graph(states_BLD, batch), self.attention(states_BLD, mask_BL)]
        return Encoded(states_BLD, self.dropout(torch.cat(vectors, 1)))

    def _graph(self, states_BLD: Tensor, batch: Batch) -> list[Tensor]:
        """Return V_r and max V, [B, D] each."""
        numbers_BL, num_turns_B = turn_numbers(batch.on_host(), self._separator)
        num_nodes = int(num_turns_B.max()) + 1
        numbers_BL, num_turns_B = (to_device(tensor, states_BLD.device) for tensor in (numbers_BL, num_turns_B))
        nodes_BVD = utterance_nodes(states_BLD, numbers_BL, num_turns_B, num_nodes)
        edges_BVV = adjacency(num_turns_B, nodes_BVD.shape[1]).to(nodes_BVD.dtype)
        for layer in self.graph_layers:
            nodes_BVD = torch.relu(edges_BVV @ layer(nodes_BVD)) + nodes_BVD  # V ← ReLU(ÂVW) + V
        missing_BV = torch.arange(nodes_BVD.shape[1], device=num_turns_B.device) > num_turns_B[:, None]
        return [nodes_BVD[:, 0], nodes_BVD.masked_fill(missing_BV[:, :, None], -torch.inf).amax(1)]


def utterance_nodes(states_BLD: Tensor, numbers_BL: Tensor, num_turns_B: Tensor, num_nodes: int) -> Tensor:
    """Return mean states of the response (node 0) and each turn of the context, [B, V, D]; missing turns are 0."""
    node_BL = torch.where(numbers_BL == num_turns_B[:, None], 0, numbers_BL + 1)
    member_BLV = one_hot(node_BL, num_nodes) * (numbers_BL >= 0)[:, :, None]
    sums_BVD = torch.einsum("blv,bld->bvd", member_BLV.to(states_BLD.dtype), states_BLD)
    return sums_BVD / member_BLV.sum(1).clamp(min=1)[:, :, None]


def adjacency(num_turns_B: Tensor, num_nodes: int) -> Tensor:
    """Return Â = D⁻¹A [B, V, V] of the utterance dependency graphs: rows sum to 1, but those of missing nodes to 0.

    Undirected edges join the response (node 0) and each turn (nodes 1 …), and consecutive turns; each node has a loop.
    """
    index_V = torch.arange(num_nodes, device=num_turns_B.device)
    distance_VV = (index_V[:, None] - index_V).abs()
    joined_VV = (distance_VV <= 1) | (index_V == 0) | (index_V[:, None] == 0)
    exists_BV = index_V <= num_turns_B[:, None]
    edges_BVV = (joined_VV & exists_BV[:, :, None] & exists_BV[:, None]).float()
    return edges_BVV / edges_BVV.sum(2, keepdim=True).clamp(min=1)


class SelfAttention(nn.Module):
    """One multi-head self-attention layer with residual and layer norm, whose first token's state is used."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self._num_heads = num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Return the first token's state [B, D], the only query that is computed."""
        first_BD = states_BLD[:, 0]
        query, key, value = (
            layer(states).unflatten(-1, (self._num_heads, -1)).transpose(1, 2)
            for layer, states in ((self.query, first_BD[:, None]), (self.key, states_BLD), (self.value, states_BLD))
        )
        mixed_BHlD = scaled_dot_product_attention(query, key, value, attn_mask=mask_BL[:, None, None])
        return self.norm(first_BD + self.dropout(self.output(mixed_BHlD.transpose(1, 2).flatten(1))))
