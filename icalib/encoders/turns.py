"""Which turn a token belongs to, read off a layout with turn separators, and the tokens by turn."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icalib.encoders.transformer import Batch


def turn_numbers(batch: Batch, separator: int) -> tuple[Tensor, Tensor]:
    """Numbers of the tokens' turns [B, L], and of the context's turns [B].

    The context's turns count from 0; the candidate's number is that of the context's turns; [CLS], separators and
    padding have −1. Separators with nothing between them (an empty utterance, RoBERTa's pair) make no turn.
    """
    places_L = torch.arange(batch.ids_BL.shape[1], device=batch.ids_BL.device)
    words_BL = (batch.ids_BL != separator) & (places_L > 0) & (places_L < batch.lengths_B[:, None])
    context_BL = words_BL & (batch.segments_BL == 0)
    starts_BL = context_BL.clone()
    starts_BL[:, 1:] &= ~context_BL[:, :-1]
    num_turns_B = starts_BL.sum(1)
    numbers_BL = torch.where(context_BL, starts_BL.cumsum(1) - 1, num_turns_B[:, None])
    return numbers_BL.masked_fill(~words_BL, -1), num_turns_B


class Words(NamedTuple):
    """Where the words of T texts a pair stand in the pair's sequence [B, T, W], and where there is one [B, T, W]."""

    places_BTW: Tensor
    mask_BTW: Tensor

    def of(self, values_BL: Tensor) -> Tensor:
        """The words' ids [B, T, W] or states [B, T, W, D], from those of the sequences; any where there is none."""
        rows_B = torch.arange(len(values_BL), device=values_BL.device)
        return values_BL[rows_B[:, None, None], self.places_BTW]


def context_words(batch: Batch, separator: int, *, max_turns: int | None = None, max_words: int | None = None) -> Words:
    """The words of the context's turns; turns that a pair hasn't come last and have no words.

    Args:
        max_turns: T, of which the last ones are kept; None takes the most that a pair of the batch has.
        max_words: a turn keeps its last ones; None keeps all.
    """
    numbers_BL, num_turns_B = turn_numbers(batch, separator)
    num_slots = max(int(num_turns_B.max()), 1) if max_turns is None else max_turns
    slots_BL = numbers_BL - (num_turns_B[:, None] - num_slots).clamp(min=0)
    return _words(slots_BL.masked_fill(batch.segments_BL == 1, -1), num_slots, max_words, keep_end=True)


def candidate_words(batch: Batch, separator: int, *, max_words: int | None = None) -> Words:
    """The candidate's words [B, 1, W]; its first ones are kept."""
    numbers_BL, _ = turn_numbers(batch, separator)
    is_word_BL = (numbers_BL >= 0) & (batch.segments_BL == 1)
    return _words(is_word_BL.long() - 1, 1, max_words, keep_end=False)


def _words(slots_BL: Tensor, num_slots: int, max_words: int | None, *, keep_end: bool) -> Words:
    """Words by their slot; −1 or less is left out. W is the length of the longest text, 1 at least."""
    num_texts = len(slots_BL) * num_slots
    rows_N, places_N = (slots_BL >= 0).nonzero(as_tuple=True)
    texts_N = rows_N * num_slots + slots_BL[rows_N, places_N]  # ascending: words stand in the order of their texts
    lengths = torch.bincount(texts_N, minlength=num_texts)
    width = max(int(lengths.max()), 1) if max_words is None else max(min(int(lengths.max()), max_words), 1)
    ranks_N = torch.arange(len(texts_N), device=texts_N.device) - (lengths.cumsum(0) - lengths)[texts_N]
    if keep_end:
        ranks_N = ranks_N - (lengths - width).clamp(min=0)[texts_N]
    kept_N = (ranks_N >= 0) & (ranks_N < width)
    places = places_N.new_zeros(num_texts, width)
    mask = torch.zeros_like(places, dtype=torch.bool)
    places[texts_N[kept_N], ranks_N[kept_N]] = places_N[kept_N]
    mask[texts_N[kept_N], ranks_N[kept_N]] = True
    shape = (len(slots_BL), num_slots, width)
    return Words(places.view(shape), mask.view(shape))
