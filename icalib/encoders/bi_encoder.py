"""A bi-encoder: it encodes the two segments of a pair separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.data.encoding import Encoded as EncodedIds
from icalib.data.encoding import Ids
from icalib.encoders.forward_batches import forward_batches
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import AbstractEncoder, Batch, TransformerEncoder

_MAX_REMEMBERED = 2**18  # pairs; about 30 MiB
_MAX_TOKENS = 8192


@final
class BiEncoder(nn.Module):
    """Cosine of the mean token states of context and candidate, which a backbone encodes separately.

    A ranker's training leaves it as it is (post-training and `BiEncoderJob` train it), and it uses no dropout, intents
    or separators between turns, so a pair has one similarity. Passes over the same batch compute it once, and
    `remember` computes it once for pairs that recur.

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
        self._remembered: dict[bytes, float] = {}

    @override
    def train(self, mode: bool = True) -> BiEncoder:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        """Return the similarity of each pair; [B], float32."""
        if self._last is None or self._last[0].ids_BL is not batch.ids_BL:
            self._last = batch, self._recalled(batch)
        return self._last[1]

    @torch.no_grad()
    def remember(self, pairs: Sequence[EncodedIds], device: torch.device) -> None:
        """Compute the similarities of pairs, which later batches then look up; the first 2¹⁸ are kept.

        Call it with the final weights and in the precision of the later passes, with many pairs: each distinct text is
        encoded once, in batches of similar length. Batches with other pairs are computed as if nothing were remembered:
        results don't depend on earlier batches, e.g. on where a training resumed.
        """
        keys = [self._key(pair) for pair in pairs]
        room = _MAX_REMEMBERED - len(self._remembered)
        if room < len(keys) or all(key in self._remembered for key in keys):
            return
        contexts, candidates = zip(*map(self._texts, pairs), strict=True)
        means_BD = _distinct([*contexts, *candidates], lambda texts: text_means(self.encoder, texts, device), device)
        similarities = (means_BD[: len(pairs)] * means_BD[len(pairs) :]).sum(1)
        for key, value in zip(keys, similarities.cpu().tolist(), strict=True):
            self._remembered.setdefault(key, value)

    def forget(self) -> None:
        """Forget all similarities, to make room for those of other pairs."""
        self._remembered.clear()

    def _recalled(self, batch: Batch) -> Tensor:
        pairs, device = _pairs(batch), batch.ids_BL.device
        if self._remembered:
            values = [self._remembered.get(self._key(pair)) for pair in pairs]
            if None not in values:
                return to_device(torch.tensor(values), device)
        return self._similarity(pairs, device)

    def _key(self, pair: EncodedIds) -> bytes:
        context, candidate = self._texts(pair)
        return blake2b(b"%d " % len(context) + context.tobytes() + candidate.tobytes(), digest_size=16).digest()

    def _texts(self, pair: EncodedIds) -> tuple[Ids, Ids]:
        """Return context and candidate, each with [CLS] and a separator, without intents and separators of turns."""
        ids, start = pair
        is_word = (ids != ids[-1]) & (ids < self.encoder.vocabulary)
        is_word[0] = False
        context, candidate = ids[:start][is_word[:start]], ids[start:][is_word[start:]]
        return np.concatenate([ids[:1], context, ids[-1:]]), np.concatenate([ids[:1], candidate, ids[-1:]])

    def _similarity(self, pairs: Sequence[EncodedIds], device: torch.device) -> Tensor:
        contexts, candidates = zip(*map(self._texts, pairs), strict=True)
        return (self._means(contexts, device) * self._means(candidates, device)).sum(1)

    def _means(self, texts: Sequence[Ids], device: torch.device) -> Tensor:
        """Return `unit_means` of texts, in one pass, as ZeRO stage 3 needs; equal ones (contexts) are encoded once."""
        return _distinct(texts, lambda distinct: unit_means(self.encoder, _batch(distinct, device)), device)


def text_means(encoder: TransformerEncoder, texts: Sequence[Ids], device: torch.device) -> Tensor:
    """Return `unit_means` of texts [N, D], in batches of similar length."""
    batches = forward_batches([len(text) for text in texts], _MAX_TOKENS, device)
    means = [unit_means(encoder, _batch([texts[int(row)] for row in batch], device)) for batch in batches]
    order = torch.from_numpy(np.argsort(np.concatenate(batches)))
    return torch.cat(means)[to_device(order, device)]


def _distinct(texts: Sequence[Ids], means: Callable[[Sequence[Ids]], Tensor], device: torch.device) -> Tensor:
    """Return the means of texts [N, D], of which equal ones are encoded once."""
    distinct = {text.tobytes(): text for text in texts}
    row_of = {text: row for row, text in enumerate(distinct)}
    rows_B = torch.tensor([row_of[text.tobytes()] for text in texts])
    return means(list(distinct.values()))[to_device(rows_B, device)]


def _batch(texts: Sequence[Ids], device: torch.device) -> Batch:
    return Batch.of([(text, len(text)) for text in texts]).to(device)


def _pairs(batch: Batch) -> Sequence[EncodedIds]:
    """Return the ids of a batch's pairs; without the inputs it was made of, this waits for the device."""
    if batch.inputs is not None:
        return batch.inputs
    ids_BL, lengths = batch.ids_BL.cpu().numpy(), batch.lengths_B.tolist()
    seconds = batch.segments_BL.sum(1).tolist()
    return [(ids[:length], length - second) for ids, length, second in zip(ids_BL, lengths, seconds, strict=True)]


def unit_means(encoder: TransformerEncoder, batch: Batch) -> Tensor:
    """Return the mean token state of each text, scaled to length 1; [B, D], float32."""
    states_BLD, mask_BL = encoder.token_states(batch)
    return nn.functional.normalize((states_BLD.float() * mask_BL[..., None]).sum(1), dim=1)
