"""Convolutions over the words of a text, for classifying it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTHS = (3, 4, 5)
"""Widths of the filters, in words."""


class TextCNN(nn.Module):
    """Word vectors, filters of three widths with ReLU, the maximum of each over the text, linear (Kim 2014, Fig. 1)."""

    def __init__(self, vocabulary: int, width: int, *, num_filters: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, num_filters, span, padding=span - 1) for span in WIDTHS)
        self.dropout = nn.Dropout(dropout)
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
