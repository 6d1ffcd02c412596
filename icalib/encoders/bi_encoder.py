"""The untrained backbone as a bi-encoder: two segments of a pair, read apart."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from icalib.encoders.transformer import AbstractEncoder, Batch, TransformerEncoder


@final
class BiEncoder(nn.Module):
    """Cosine of the mean token states of context and candidate, which the untrained backbone reads apart.

    It stays as it is: without dropout, gradients, intents or separators between turns, whoever trains around it. So
    passes over the same batch, stochastic or not, have the same similarities, which are computed once.

    Args:
        config: names the backbone; all its layers are used.
        pretrained: load its weights; False where a checkpoint's weights follow.
    """

    def __init__(self, config: AbstractEncoder.Config, *, pretrained: bool = True) -> None:
        super().__init__()
        plain = TransformerEncoder.Config(backbone=config.backbone, budget=config.budget)
        self.encoder = TransformerEncoder(plain, num_intents=0, pretrained=pretrained).eval()
        self.encoder.requires_grad_(False)
        self._last: tuple[Batch, Tensor] | None = None

    def train(self, mode: bool = True) -> BiEncoder:
        """Stays in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        """Similarity of each pair; [B], float32."""
        if self._last is None or self._last[0].ids_BL is not batch.ids_BL:
            self._last = batch, self._similarity(batch)
        return self._last[1]

    def _similarity(self, batch: Batch) -> Tensor:
        ids_BL, last_B1 = batch.ids_BL, batch.lengths_B[:, None] - 1
        places_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        frame_BL = (places_L == 0) | (places_L == last_B1)  # [CLS] and a separator, which each text has of its own
        words_BL = (places_L < last_B1) & (ids_BL != ids_BL.gather(1, last_B1)) & (ids_BL < self.encoder.vocabulary)
        candidate_BL = batch.segments_BL == 1
        contexts_BD = self._means(ids_BL, frame_BL | (words_BL & ~candidate_BL))
        candidates_BD = self._means(ids_BL, frame_BL | (words_BL & candidate_BL))
        return (contexts_BD * candidates_BD).sum(1)

    def _means(self, ids_BL: Tensor, kept_BL: Tensor) -> Tensor:
        """`unit_means` of the tokens that are kept; equal texts (contexts) are read once."""
        lengths_B = kept_BL.sum(1)
        order_BL = torch.argsort((~kept_BL).to(torch.uint8), dim=1, stable=True)[:, : int(lengths_B.max())]
        mask_BL = torch.arange(order_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
        texts_BL = torch.where(mask_BL, ids_BL.gather(1, order_BL) + 1, 0)  # 0 where a text is over
        texts_NL, place_B = torch.unique(texts_BL, dim=0, return_inverse=True)
        lengths_N = (texts_NL > 0).sum(1)
        ids_NL = (texts_NL - 1).clamp(min=0)
        return unit_means(self.encoder, Batch(ids_NL, torch.zeros_like(ids_NL), lengths_N))[place_B]


def unit_means(encoder: TransformerEncoder, batch: Batch) -> Tensor:
    """Mean token state of each text, scaled to length 1; [B, D], float32."""
    states_BLD, mask_BL = encoder.token_states(batch)
    return nn.functional.normalize((states_BLD.float() * mask_BL[..., None]).sum(1), dim=1)
