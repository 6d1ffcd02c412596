"""Vectors of texts that a backbone encodes by themselves, for bi-encoders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from icalib.data.encoding import Ids
from icalib.encoders.transfer import forward_batches, to_device
from icalib.encoders.transformer import Batch, TransformerEncoder

_MAX_TOKENS = 8192


def text_means(encoder: TransformerEncoder, texts: Sequence[Ids], device: torch.device) -> Tensor:
    """Return `unit_means` of texts [N, D], in batches of similar length."""
    batches = forward_batches([len(text) for text in texts], _MAX_TOKENS, device)
    inputs = ([(texts[int(row)], len(texts[int(row)])) for row in batch] for batch in batches)
    means = [unit_means(encoder, Batch.of(batch).to(device)) for batch in inputs]
    order = torch.from_numpy(np.argsort(np.concatenate(batches)))
    return torch.cat(means)[to_device(order, device)]


def unit_means(encoder: TransformerEncoder, batch: Batch) -> Tensor:
    """Return the mean token state of each text, scaled to length 1; [B, D], float32."""
    states_BLD, mask_BL = encoder.token_states(batch)
    return nn.functional.normalize((states_BLD.float() * mask_BL[..., None]).sum(1), dim=1)
