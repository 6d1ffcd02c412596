"""The turn of each token in a layout with turn separators, and the tokens by turn.

All on the CPU, since numbers of turns and words determine shapes: reading them from a GPU would wait for its work.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import Batch


def turn_numbers(batch: Batch, separator: int) -> tuple[Tensor, Tensor]:
    """Return the turn index of each token [B, L], and the number of turns of each context [B].

    The candidate comes after the context's turns; [CLS], separators and padding have −1. Adjacent separators make no
    turn.
    """
    index_L = torch.arange(batch.ids_BL.shape[1], device=batch.ids_BL.device)
    words_BL = (batch.ids_BL != separator) & (index_L > 0) & (index_L < batch.lengths_B[:, None])
    context_BL = words_BL & (batch.segments_BL == 0)
    starts_BL = context_BL.clone()
    starts_BL[:, 1:] &= ~context_BL[:, :-1]
    num_turns_B = starts_BL.sum(1)
    numbers_BL = torch.where(context_BL, starts_BL.cumsum(1) - 1, num_turns_B[:, None])
    return numbers_BL.masked_fill(~words_BL, -1), num_turns_B


class Words(NamedTuple):
    """Positions of the words of T texts in each pair's sequence, and the mask of words that exist; [B, T, W] each."""

    positions_BTW: Tensor
    mask_BTW: Tensor

    def of(self, values_BL: Tensor) -> Tensor:
        """Return the words' ids [B, T, W] or states [B, T, W, D] from the sequences; arbitrary where masked."""
        rows_B = torch.arange(len(values_BL), device=values_BL.device)
        return values_BL[rows_B[:, None, None], self.positions_BTW]

    def to(self, device: torch.device) -> Words:
        """Return the words on a device."""
        return Words(*(to_device(tensor, device) for tensor in self))


def context_words(batch: Batch, separator: int, *, max_turns: int | None = None, max_words: int | None = None) -> Words:
    """Return the words of the context's turns; missing turns come last and have no words.

    The last `max_turns` (None: the batch's maximum) turns and the last `max_words` words of each are kept.
    """
    device, batch = batch.ids_BL.device, batch.on_host()
    numbers_BL, num_turns_B = turn_numbers(batch, separator)
    num_slots = max(int(num_turns_B.max()), 1) if max_turns is None else max_turns
    slots_BL = numbers_BL - (num_turns_B[:, None] - num_slots).clamp(min=0)
    return _words(slots_BL.masked_fill(batch.segments_BL == 1, -1), num_slots, max_words, keep_end=True).to(device)


def candidate_words(batch: Batch, separator: int, *, max_words: int | None = None) -> Words:
    """Return the candidate's words [B, 1, W]; its first ones are kept."""
    device, batch = batch.ids_BL.device, batch.on_host()
    numbers_BL, _ = turn_numbers(batch, separator)
    is_word_BL = (numbers_BL >= 0) & (batch.segments_BL == 1)
    return _words(is_word_BL.long() - 1, 1, max_words, keep_end=False).to(device)


def _words(slots_BL: Tensor, num_slots: int, max_words: int | None, *, keep_end: bool) -> Words:
    """Group words by slot, leaving out negative slots; W is the length of the longest text, at least 1."""
    num_texts = len(slots_BL) * num_slots
    rows_N, positions_N = (slots_BL >= 0).nonzero(as_tuple=True)
    texts_N = rows_N * num_slots + slots_BL[rows_N, positions_N]  # ascending, as words are in the order of their texts
    lengths = torch.bincount(texts_N, minlength=num_texts)
    width = max(int(lengths.max()), 1) if max_words is None else max(min(int(lengths.max()), max_words), 1)
    ranks_N = torch.arange(len(texts_N), device=texts_N.device) - (lengths.cumsum(0) - lengths)[texts_N]
    if keep_end:
        ranks_N = ranks_N - (lengths - width).clamp(min=0)[texts_N]
    kept_N = (ranks_N >= 0) & (ranks_N < width)
    positions = positions_N.new_zeros(num_texts, width)
    mask = torch.zeros_like(positions, dtype=torch.bool)
    positions[texts_N[kept_N], ranks_N[kept_N]] = positions_N[kept_N]
    mask[texts_N[kept_N], ranks_N[kept_N]] = True
    shape = (len(slots_BL), num_slots, width)
    return Words(positions.view(shape), mask.view(shape))
