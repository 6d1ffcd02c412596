"""The untrained backbone as a bi-encoder: it encodes the two segments of a pair separately."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.encoders.transformer import AbstractEncoder, Batch, TransformerEncoder


@final
class BiEncoder(nn.Module):
    """Cosine of the mean token states of context and candidate, which the untrained backbone encodes separately.

    It is never trained and uses no dropout, intents or separators between turns. Passes over the same batch, stochastic
    or not, therefore have the same similarities, which are computed once.

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

    @override
    def train(self, mode: bool = True) -> BiEncoder:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        """Return the similarity of each pair; [B], float32."""
        if self._last is None or self._last[0].ids_BL is not batch.ids_BL:
            self._last = batch, self._similarity(batch)
        return self._last[1]

    def _similarity(self, batch: Batch) -> Tensor:
        ids_BL, last_B1 = batch.ids_BL, batch.lengths_B[:, None] - 1
        index_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        frame_BL = (index_L == 0) | (index_L == last_B1)  # [CLS] and a separator, which frame each text
        words_BL = (index_L < last_B1) & (ids_BL != ids_BL.gather(1, last_B1)) & (ids_BL < self.encoder.vocabulary)
        candidate_BL = batch.segments_BL == 1
        contexts_BD = self._means(ids_BL, frame_BL | (words_BL & ~candidate_BL))
        candidates_BD = self._means(ids_BL, frame_BL | (words_BL & candidate_BL))
        return (contexts_BD * candidates_BD).sum(1)

    def _means(self, ids_BL: Tensor, kept_BL: Tensor) -> Tensor:
        """Return `unit_means` of the tokens that are kept; equal texts (contexts) are encoded once."""
        lengths_B = kept_BL.sum(1)
        order_BL = torch.argsort((~kept_BL).to(torch.uint8), dim=1, stable=True)[:, : int(lengths_B.max())]
        mask_BL = torch.arange(order_BL.shape[1], device=ids_BL.device) < lengths_B[:, None]
        texts_BL = torch.where(mask_BL, ids_BL.gather(1, order_BL) + 1, 0)  # 0 after the end of a text
        texts_NL, index_B = torch.unique(texts_BL, dim=0, return_inverse=True)
        lengths_N = (texts_NL > 0).sum(1)
        ids_NL = (texts_NL - 1).clamp(min=0)
        return unit_means(self.encoder, Batch(ids_NL, torch.zeros_like(ids_NL), lengths_N))[index_B]


def unit_means(encoder: TransformerEncoder, batch: Batch) -> Tensor:
    """Return the mean token state of each text, scaled to length 1; [B, D], float32."""
    states_BLD, mask_BL = encoder.token_states(batch)
    return nn.functional.normalize((states_BLD.float() * mask_BL[..., None]).sum(1), dim=1)
