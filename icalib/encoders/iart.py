"""IART: word-by-word matching of context and candidate at several depths, with turns weighted by intents."""

from __future__ import annotations

from typing import Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import elu, max_pool3d, scaled_dot_product_attention
from typing_extensions import override

from icalib.core.combination import OWN_WORD_VECTORS, Capabilities
from icalib.data.encoding import Budget
from icalib.encoders.backbone import Tokenizer, load_config
from icalib.encoders.transformer import AbstractEncoder, Batch, Encoded
from icalib.encoders.turns import Words, candidate_words, context_words

_POOL = 3  # side of the convolutions and of the pooling, which is as wide as its stride
WIDTHS = (3, 4, 5)
"""Widths of the filters, in words."""


@final
class IART(AbstractEncoder):
    """Intent-aware response ranking with transformers (Yang et al. 2020), after the authors' released code.

    Turns and candidate pass through the same S self-attention blocks; at each of the S + 1 depths they also attend to
    each other. The 2(S + 1) pairs of states give a similarity tensor [T, W, W] each, in which a turn is scaled by its
    attention weight by intents (uniform for `num_intents` 0); a 3-D CNN over them makes the features.

    Our interpretation: words are the backbone tokenizer's word pieces, all that is used of it; positions without a word
    are 0 in the similarity tensors; a long turn keeps its last words, a candidate its first; the attention starts
    uniform. Word vectors and classifier come from separate stages, not from a pretrained backbone.
    """

    class Config(AbstractEncoder.Config):
        """Settings of IART; the defaults are the paper's except for the words of a turn (180 for Ubuntu)."""

        budget: Budget = Budget(max_context_tokens=1205, max_candidate_tokens=200)
        """Tokens of context, including separators, and of candidate that the encoder sees."""
        turn_separators: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]
        """Write a separator between the utterances of a context: it delimits the turns."""
        max_turns: int = Field(default=6, ge=1)
        """T: number of turns matched, the last of the context."""
        max_words: int = Field(default=200, ge=1)
        """W: number of words matched of a turn and of the candidate. Memory grows with the square of the actual
        lengths, so short texts cost the same at a larger W."""
        embedding_size: int = Field(default=200, ge=1)
        """D: width of the word vectors and of all states."""
        num_blocks: int = Field(default=4, ge=0)
        """S: number of self-attention blocks."""
        num_channels: int = Field(default=16, ge=1)
        """Channels of both convolutions."""
        intent_filters: int = Field(default=100, ge=1)
        """Filters of each of the intent classifier's three widths."""

        @override
        def provides(self) -> Capabilities:
            return {OWN_WORD_VECTORS}

        def untrained_classifier(self, vocabulary: int, num_intents: int) -> TextCNN:
            """Return the intent classifier with random weights."""
            return TextCNN(vocabulary, self.embedding_size, num_filters=self.intent_filters, num_classes=num_intents)

    def __init__(self, config: Config, *, num_intents: int, pretrained: bool = True) -> None:
        super().__init__()
        self.config = config
        self._separator = Tokenizer(config.backbone).separator
        self.vocabulary: int = load_config(config.backbone).vocab_size
        self.max_length: int = config.budget.max_context_tokens + config.budget.max_candidate_tokens + 4
        self.embedding = nn.Embedding(self.vocabulary, config.embedding_size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.matching = Matching(config.embedding_size, config.num_blocks)
        self.intent_classifier: TextCNN | None = None
        if num_intents:
            self.intent_classifier = config.untrained_classifier(self.vocabulary, num_intents).requires_grad_(False)
        self.intent_attention = IntentAttention(num_intents)
        self.convolutions = Convolutions(2 * (config.num_blocks + 1), config.num_channels)
        self.width: int = self.convolutions.width(config.max_turns, config.max_words)

    @override
    def train(self, mode: bool = True) -> IART:
        """Set training mode for all but the intent classifier, which stays in evaluation mode."""
        super().train(mode)
        if self.intent_classifier is not None:
            self.intent_classifier.eval()
        return self

    @override
    def forward(self, batch: Batch) -> Encoded:
        config = self.config
        turns = context_words(batch, self._separator, max_turns=config.max_turns, max_words=config.max_words)
        candidate = candidate_words(batch, self._separator, max_words=config.max_words)
        words_BLD = self.embedding(batch.ids_BL)
        similarity_BSTWV = self.matching(
            turns.of(words_BLD), turns.mask_BTW, candidate.of(words_BLD), candidate.mask_BTW
        )
        weights_BT = self.intent_attention(*self._intents(batch, turns, candidate), turns.mask_BTW.any(2))
        weighted_BSTWV = similarity_BSTWV * weights_BT[:, None, :, None, None]
        features_BD = self.convolutions(weighted_BSTWV, config.max_words)
        return Encoded(words_BLD, features_BD)

    @torch.no_grad()
    def _intents(self, batch: Batch, turns: Words, candidate: Words) -> tuple[Tensor, Tensor]:
        """Return the classifier's probabilities of the turns' intents [B, T, K] and the candidate's [B, K]."""
        if self.intent_classifier is None:
            none_BT0 = turns.mask_BTW.new_zeros((*turns.mask_BTW.shape[:2], 0), dtype=torch.float32)
            return none_BT0, none_BT0[:, 0]
        of_turns_NK, of_candidate_BK = (
            torch.sigmoid(self.intent_classifier(words.of(batch.ids_BL).flatten(0, 1), words.mask_BTW.flatten(0, 1)))
            for words in (turns, candidate)
        )
        return of_turns_NK.unflatten(0, turns.mask_BTW.shape[:2]), of_candidate_BK


class TextCNN(nn.Module):
    """Word vectors, filters of three widths with ReLU, the maximum of each over the text, linear (Kim 2014, Fig. 1)."""

    def __init__(self, vocabulary: int, width: int, *, num_filters: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, num_filters, span, padding=span - 1) for span in WIDTHS)
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(len(WIDTHS) * num_filters, num_classes)

    def forward(self, ids_NW: Tensor, mask_NW: Tensor) -> Tensor:
        """Return logits [N, K] of texts; words are where the mask is true, at the start, and the rest is ignored."""
        words_NDW = (self.embedding(ids_NW) * mask_NW[:, :, None]).transpose(1, 2)
        features_NF = torch.cat([self._maxima(convolve(words_NDW), mask_NW) for convolve in self.filters], 1)
        return self.output(self.dropout(features_NF))

    @staticmethod
    def _maxima(responses_NFW: Tensor, mask_NW: Tensor) -> Tensor:
        """Return the maximum [N, F] over the positions where a filter overlaps a word; 0 for texts without words."""
        index_W = torch.arange(responses_NFW.shape[2], device=mask_NW.device)
        span = responses_NFW.shape[2] - mask_NW.shape[1] + 1
        lengths_N = mask_NW.sum(1)
        touched_NW = (index_W < lengths_N[:, None] + span - 1) & (lengths_N[:, None] > 0)
        return responses_NFW.relu().masked_fill(~touched_NW[:, None], 0.0).amax(2)


class Block(nn.Module):
    """Single-head attention without projections, then two linear layers; each with residual and layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attended = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        self.mixed = nn.LayerNorm(width)

    def forward(self, queries_BTWD: Tensor, keys_BTVD: Tensor, mask_BTV: Tensor) -> Tensor:
        """Return the queries' states [B, T, W, D] after attending to keys where the mask is true."""
        attended_BTWD = scaled_dot_product_attention(queries_BTWD, keys_BTVD, keys_BTVD, attn_mask=mask_BTV[:, :, None])
        states_BTWD = self.attended(queries_BTWD + attended_BTWD)
        return self.mixed(states_BTWD + self.outer(torch.relu(self.inner(states_BTWD))))


class Matching(nn.Module):
    """Similarities of turns and candidate at all depths: S + 1 with and S + 1 without cross attention."""

    def __init__(self, width: int, num_blocks: int) -> None:
        super().__init__()
        self.own = nn.ModuleList(Block(width) for _ in range(num_blocks))  # shared by turns and candidate
        self.turn_to_candidate = nn.ModuleList(Block(width) for _ in range(num_blocks + 1))
        self.candidate_to_turn = nn.ModuleList(Block(width) for _ in range(num_blocks + 1))

    def forward(self, turns_BTWD: Tensor, turn_mask_BTW: Tensor, candidate_B1VD: Tensor, mask_B1V: Tensor) -> Tensor:
        """Return sim_s[i, j] = U_s[i]·R_s[j] / √D as [B, 2(S + 1), T, W, V]; 0 where either is not a word."""
        turn_keys_BTW, keys_B1V = _with_first(turn_mask_BTW), _with_first(mask_B1V)
        turns, candidates = [turns_BTWD], [candidate_B1VD]
        for block in self.own:
            turns.append(block(turns[-1], turns[-1], turn_keys_BTW))
            candidates.append(block(candidates[-1], candidates[-1], keys_B1V))
        num_turns = turns_BTWD.shape[1]
        candidates = [states.expand(-1, num_turns, -1, -1) for states in candidates]
        keys_BTV = keys_B1V.expand(-1, num_turns, -1)
        crossed = [
            (to_candidate(u_BTWD, r_BTVD, keys_BTV), to_turn(r_BTVD, u_BTWD, turn_keys_BTW))
            for to_candidate, to_turn, u_BTWD, r_BTVD in zip(
                self.turn_to_candidate, self.candidate_to_turn, turns, candidates, strict=True
            )
        ]
        pairs = [*crossed, *zip(turns, candidates, strict=True)]
        scale = turns_BTWD.shape[-1] ** -0.5
        similarity_BSTWV = torch.stack([u_BTWD @ r_BTVD.transpose(2, 3) * scale for u_BTWD, r_BTVD in pairs], 1)
        both_BTWV = turn_mask_BTW[:, :, :, None] & mask_B1V[:, :, None]
        return similarity_BSTWV * both_BTWV[:, None]


def _with_first(mask_BTW: Tensor) -> Tensor:
    """Return the mask with the first position set for texts without words: attention to nothing is NaN."""
    first_W = torch.arange(mask_BTW.shape[2], device=mask_BTW.device) == 0
    return mask_BTW | (first_W & ~mask_BTW.any(2, keepdim=True))


class IntentAttention(nn.Module):
    """Weights of a context's turns from their intents and the candidate's, by I_uᵀMI_r; uniform at the start.

    Args:
        num_intents: K; without intents all turns have the same weight.
    """

    def __init__(self, num_intents: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_intents, num_intents)) if num_intents else None

    def forward(self, turns_BTK: Tensor, candidate_BK: Tensor, is_turn_BT: Tensor) -> Tensor:
        """Return weights [B, T] that sum to 1 over the actual turns and are 0 elsewhere."""
        logits_BT = self._logits(turns_BTK, candidate_BK).float()
        return logits_BT.masked_fill(~is_turn_BT, torch.finfo(logits_BT.dtype).min).softmax(1) * is_turn_BT

    def _logits(self, turns_BTK: Tensor, candidate_BK: Tensor) -> Tensor:
        if self.weight is None:
            return turns_BTK.sum(2)  # K = 0, so zeros
        return torch.einsum("btk,kj,bj->bt", turns_BTK, self.weight, candidate_BK)


class Convolutions(nn.Module):
    """Two layers of 3 × 3 × 3 convolution, ELU and max-pooling of stride 3 over turns × words × words, flattened.

    An axis that isn't a multiple of three is padded as by the released code's SAME: half of the missing positions
    before the first, half after the last, an odd one after. Where there is no word, a convolution's output is the same
    at all positions but the last, which the border affects: redundant ones of the W positions are left out, and their
    columns copied. In float32: in bfloat16 such gradients are occasionally NaN on a CPU (torch 2.13).
    """

    def __init__(self, num_inputs: int, num_channels: int) -> None:
        super().__init__()
        self.first = nn.Conv3d(num_inputs, num_channels, 3, padding=1)
        self.second = nn.Conv3d(num_channels, num_channels, 3, padding=1)

    def width(self, num_turns: int, num_words: int) -> int:
        """Return the number of features: 8464 for 6 turns of 200 words and 16 channels."""
        return self.second.out_channels * _pooled(num_turns) * _pooled(num_words) ** 2

    def forward(self, similarity_BSTWV: Tensor, num_words: int) -> Tensor:
        """Return features [B, D] of the tensor padded with zeros from W and V words to `num_words` of both."""
        turn_words, candidate_words = similarity_BSTWV.shape[3:]
        rows, columns = _positions_needed(turn_words, num_words), _positions_needed(candidate_words, num_words)
        padding = (0, columns - candidate_words, 0, rows - turn_words)
        with torch.autocast(similarity_BSTWV.device.type, enabled=False):
            pooled = self._layers(nn.functional.pad(similarity_BSTWV.float(), padding))
        whole = _with_copies(_with_copies(pooled, 3, num_words), 4, num_words)
        return whole.flatten(1)

    def _layers(self, tensor_BSTWV: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            sides = [_before(size) for size in tensor_BSTWV.shape[2:]]
            tensor_BSTWV = max_pool3d(elu(layer(tensor_BSTWV)), _POOL, padding=sides, ceil_mode=True)
        return tensor_BSTWV


def _before(size: int) -> int:
    """Return the positions that pooling adds before an axis: one if two are missing, none if one is."""
    return -size % _POOL // 2


def _pooled(size: int) -> int:
    """Return the size of an axis after both layers."""
    return -(-size // _POOL**2)


def _positions_needed(num_words: int, size: int) -> int:
    """Return the shortest axis, aligned like `size`, that has all distinct features: those before the last word, one
    that no word or border affects, and the last.
    """
    # Each convolution spreads a word by one position; each pooling divides its index by three.
    first_shift, second_shift = _before(size), _before(-(-size // _POOL))
    last_touched = ((num_words + first_shift) // _POOL + 1 + second_shift) // _POOL
    return size - _POOL**2 * max(_pooled(size) - (last_touched + 3), 0)


def _with_copies(features: Tensor, axis: int, size: int) -> Tensor:
    """Extend the axis to its length for `size`: the second last feature is copied for those left out."""
    missing = _pooled(size) - features.shape[axis]
    if not missing:
        return features
    head, last = features.split([features.shape[axis] - 1, 1], axis)
    shape = [missing if dim == axis else -1 for dim in range(features.ndim)]
    return torch.cat([head, head.narrow(axis, head.shape[axis] - 1, 1).expand(shape), last], axis)
