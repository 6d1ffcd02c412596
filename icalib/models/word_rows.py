"""Training those rows of a word embedding whose tokens occur."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.encoders.transformer import BackboneEncoder


class OccurringRows(nn.Module):
    """A word embedding [V, D] of which R rows are trained; a state dict has it whole.

    The rows of tokens that don't occur are half of MiniLM's weights, and more of a multilingual model's. Their gradient
    is 0, and yet an optimiser would read and write them in every update and keep two moments of each, and workers
    would exchange them. All that it could do with them is weight decay.
    """

    def __init__(self, embedding: nn.Embedding, rows_R: npt.NDArray[np.int64]) -> None:
        super().__init__()
        whole_VD = embedding.weight.detach()
        rows = torch.from_numpy(rows_R[rows_R != embedding.padding_idx]).to(whole_VD.device)  # padding has no gradient
        self.weight = nn.Parameter(whole_VD[rows])
        self.whole_VD: Tensor
        self.register_buffer("whole_VD", whole_VD, persistent=False)
        self.rows_R: Tensor
        self.register_buffer("rows_R", rows, persistent=False)
        self.place_V: Tensor  # of a token's row in `weight`; −1 if it isn't trained
        place_V = torch.full_like(whole_VD[:, 0], -1, dtype=torch.int64)
        place_V[rows] = torch.arange(len(rows), device=rows.device)
        self.register_buffer("place_V", place_V, persistent=False)
        self.register_state_dict_post_hook(_merge_rows)
        self.register_load_state_dict_pre_hook(_split_rows)

    @override
    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of tokens, of validation's other tokens as they were; [..., D]."""
        place = self.place_V[ids]
        trained = nn.functional.embedding(place.clamp(min=0), self.weight)
        return torch.where(place[..., None] < 0, nn.functional.embedding(ids, self.whole_VD), trained)


def _merge_rows(module: Any, state: dict[str, Tensor], prefix: str, metadata: object) -> None:
    weight = state[f"{prefix}weight"]
    if len(weight) == len(module.rows_R):  # not ZeRO-3's placeholder of weights that other files have
        state[f"{prefix}weight"] = module.whole_VD.index_copy(0, module.rows_R, weight)


def _split_rows(module: Any, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    whole_VD = state[f"{prefix}weight"]
    if len(whole_VD) == len(module.whole_VD):
        module.whole_VD.copy_(whole_VD)
        state[f"{prefix}weight"] = whole_VD[module.rows_R]


def train_occurring_rows(model: nn.Module, token_ids: npt.NDArray[np.int64]) -> None:
    """Train the word embeddings of some tokens and of those that were added to the vocabulary, in all backbones."""
    for module in model.modules():
        if isinstance(module, BackboneEncoder):
            embedding: Any = module.backbone.get_input_embeddings()
            added = np.arange(module.vocabulary, embedding.num_embeddings)
            module.backbone.set_input_embeddings(OccurringRows(embedding, np.union1d(token_ids, added)))
