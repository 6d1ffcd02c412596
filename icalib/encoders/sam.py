"""SAM: similarity and semantic features of each utterance with the response, collected over the dialogue."""

from __future__ import annotations

from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import override

from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import BackboneEncoder, Batch, Encoded
from icalib.encoders.turns import candidate_words, context_words


@final
class SAM(BackboneEncoder):
    """A two-layer matching network on a backbone's token states, after the description of SAM (Zhang et al. 2022).

    It computes similarity and semantic features from BERT's states, in float32, and joins them to one probability. The
    inside of the layers and one pass of the backbone for all utterances are our interpretation.
    """

    class Config(BackboneEncoder.Config):
        """Settings of SAM."""

        turn_separators: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]
        """Write a separator between the utterances of a context: it delimits the turns."""
        matching_size: int = Field(default=256, ge=2, multiple_of=2)
        """Width of the comparisons, of both kinds of features (half of it for each direction of the BiLSTM) and of the
        GRU."""

    def __init__(self, config: Config, *, num_intents: int, pretrained: bool = True) -> None:
        super().__init__(config, num_intents=num_intents, pretrained=pretrained)
        self._separator = Tokenizer(config.backbone).separator
        size = config.matching_size
        self.similarity = SimilarityFeatures(self.width, size)
        self.semantic = SemanticFeatures(self.width, size)
        self.dialogue = Dialogue(3 * size, size, self.width)

    @override
    def forward(self, batch: Batch) -> Encoded:
        states_BLD, _ = self.token_states(batch)
        turns, candidate = (find(batch, self._separator) for find in (context_words, candidate_words))
        with torch.autocast(states_BLD.device.type, enabled=False):
            words = (turns.of(states_BLD).float(), turns.mask_BTW)
            response = (candidate.of(states_BLD).float(), candidate.mask_BTW)
            parts = [self.semantic(*words, *response), self.similarity(*words, *response)]
            features_BD = self.dialogue(torch.cat(parts, 2), turns.mask_BTW.any(2))
        return Encoded(states_BLD, features_BD)


class SimilarityFeatures(nn.Module):
    """The first layer: each word of an utterance or the response, compared with what it attends to in the other."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.compare = nn.Linear(4 * width, size)
        self.read = nn.LSTM(size, size // 2, batch_first=True, bidirectional=True)

    def forward(self, turns_BTWD: Tensor, turn_mask_BTW: Tensor, response_B1VD: Tensor, mask_B1V: Tensor) -> Tensor:
        """Return features [B, T, 2 · size] of each turn with the response."""
        num_turns = turns_BTWD.shape[1]
        response_BTVD = response_B1VD.expand(-1, num_turns, -1, -1)
        mask_BTV = mask_B1V.expand(-1, num_turns, -1)
        scores_BTWV = turns_BTWD @ response_BTVD.transpose(2, 3) * turns_BTWD.shape[-1] ** -0.5
        attended_BTWD = _softmax(scores_BTWV, mask_BTV) @ response_BTVD
        attended_BTVD = _softmax(scores_BTWV.transpose(2, 3), turn_mask_BTW) @ turns_BTWD
        of_turns_BTH = self._summary(turns_BTWD, attended_BTWD, turn_mask_BTW)
        return torch.cat([of_turns_BTH, self._summary(response_BTVD, attended_BTVD, mask_BTV)], 2)

    def _summary(self, words_BTWD: Tensor, found_BTWD: Tensor, mask_BTW: Tensor) -> Tensor:
        """Return the maximum over words [B, T, size] of a BiLSTM over [x; x̃; x − x̃; x ∘ x̃] after a linear layer."""
        both = [words_BTWD, found_BTWD, words_BTWD - found_BTWD, words_BTWD * found_BTWD]
        compared_BTWH = torch.relu(self.compare(torch.cat(both, 3))) * mask_BTW[:, :, :, None]
        lengths_N = mask_BTW.sum(2).flatten().clamp(min=1)
        words_NWH = compared_BTWH.flatten(0, 1)
        packed = pack_padded_sequence(words_NWH, lengths_N.cpu(), batch_first=True, enforce_sorted=False)
        states_NWH, _ = pad_packed_sequence(self.read(packed)[0], batch_first=True, total_length=mask_BTW.shape[2])
        missing_NW = torch.arange(mask_BTW.shape[2], device=lengths_N.device) >= lengths_N[:, None]
        summary_NH = states_NWH.masked_fill(missing_NW[:, :, None], -torch.inf).amax(1)
        return summary_NH.unflatten(0, mask_BTW.shape[:2])


class SemanticFeatures(nn.Module):
    """The second layer: [s_u; s_r; cos(s_u, s_r); s_uᵀWs_r] of mean states of an utterance and the response, linear."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.bilinear.weight)  # at the start only the cosine contributes
        self.join = nn.Linear(2 * width + 2, size)

    def forward(self, turns_BTWD: Tensor, turn_mask_BTW: Tensor, response_B1VD: Tensor, mask_B1V: Tensor) -> Tensor:
        """Return features [B, T, size] of each turn with the response."""
        turns_BTD = _means(turns_BTWD, turn_mask_BTW)
        response_BTD = _means(response_B1VD, mask_B1V).expand_as(turns_BTD)
        cosine_BT1 = cosine_similarity(turns_BTD, response_BTD, dim=2)[:, :, None]
        bilicosine_BT1 = (turns_BTD * self.bilinear(response_BTD)).sum(2, keepdim=True)
        return torch.relu(self.join(torch.cat([turns_BTD, response_BTD, cosine_BT1, bilicosine_BT1], 2)))


class Dialogue(nn.Module):
    """A GRU over the turns; its last state and the maximum over its states, through one more layer."""

    def __init__(self, width: int, size: int, num_features: int) -> None:
        super().__init__()
        self.read = nn.GRU(width, size, batch_first=True)
        self.join = nn.Linear(2 * size, num_features)

    def forward(self, turns_BTD: Tensor, is_turn_BT: Tensor) -> Tensor:
        """Return features [B, D]; missing turns come last and have no effect."""
        states_BTH, _ = self.read(turns_BTD)
        last_B = (is_turn_BT.sum(1) - 1).clamp(min=0)
        index_T = torch.arange(is_turn_BT.shape[1], device=last_B.device)
        last_BH = states_BTH[torch.arange(len(last_B), device=last_B.device), last_B]
        highest_BH = states_BTH.masked_fill((index_T > last_B[:, None])[:, :, None], -torch.inf).amax(1)
        return torch.tanh(self.join(torch.cat([last_BH, highest_BH], 1)))


def _softmax(scores_BTWV: Tensor, mask_BTV: Tensor) -> Tensor:
    """Return weights over the positions where the mask is true; uniform where it is nowhere true."""
    return scores_BTWV.masked_fill(~mask_BTV[:, :, None], torch.finfo(scores_BTWV.dtype).min).softmax(3)


def _means(words_BTWD: Tensor, mask_BTW: Tensor) -> Tensor:
    """Return the mean states of the words [B, T, D]; 0 for texts without words."""
    return (words_BTWD * mask_BTW[:, :, :, None]).sum(2) / mask_BTW.sum(2, keepdim=True).clamp(min=1)
