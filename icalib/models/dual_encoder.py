"""The bi-encoder as a model that can be trained, which contrastive post-training does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icalib.data.encoding import Budget, Ids, Layout, TokenPool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.bi_encoder import text_means, unit_means
from icalib.encoders.transformer import Batch, TransformerEncoder
from icalib.models.checkpoint import load_ranker_config, read_weights, save_ranker
from icalib.models.config import RankerConfig
from icalib.models.model import Model

Floats = npt.NDArray[np.float64]

PREFIX = "dual_encoder."
"""Starts the names of its weights in a checkpoint."""
RANKERS_PREFIX = "bi_encoder.encoder."
"""Starts the names of the same weights in a ranker's checkpoint."""
_CPU = torch.device("cpu")
_TEXTS_ON_DEVICE = 16384  # whose vectors are on the device at a time


class DualEncoder(Model):
    """Encodes contexts and responses separately; all layers of the backbone are used.

    After post-training, its weights start both the encoder and the bi-encoder of a ranker (see `start_weights`); after
    a training on labelled pools, the bi-encoder only.

    Args:
        pretrained: load the backbone's weights; False if only the layout is used.
    """

    def __init__(self, backbone: str, budget: Budget, *, pretrained: bool = True) -> None:
        super().__init__()
        self._encoder_config = TransformerEncoder.Config(backbone=backbone, budget=budget)
        self.encoder: TransformerEncoder = self._encoder_config.build(num_intents=0, pretrained=pretrained)

    def forward(self, contexts: Batch, responses: Batch) -> tuple[Tensor, Tensor]:
        """Return the vectors of contexts and responses, of length 1; [B, D] each, float32."""
        return unit_means(self.encoder, contexts), unit_means(self.encoder, responses)

    @property
    def layout(self) -> Layout:
        """The layout of contexts and responses."""
        encoder = self._encoder_config
        return Tokenizer(encoder.backbone).layout(encoder.budget, self.encoder.max_length, self.encoder.vocabulary)

    @classmethod
    def load(cls, folder: Path) -> DualEncoder:
        """Load a checkpoint that `save` wrote."""
        config, weights = load_ranker_config(folder).encoder, read_weights(folder)
        loaded = cls(config.backbone, config.budget, pretrained=False)
        loaded.encoder.load_state_dict(bi_encoder_weights(weights))
        return loaded

    def start(self, folder: Path) -> None:
        """Copy the weights of a bi-encoder's checkpoint, or of the bi-encoder in a ranker's, if it has one."""
        if found := bi_encoder_weights(read_weights(folder)):
            self.encoder.load_state_dict(found)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a checkpoint for `start_weights`."""
        weights = {f"{PREFIX}{name.removeprefix('encoder.')}": tensor for name, tensor in state.items()}
        save_ranker(folder, RankerConfig(encoder=self._encoder_config), weights)


def bi_encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the bi-encoder in a checkpoint, its own or a ranker's; empty without one."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        for prefix in (PREFIX, RANKERS_PREFIX)
        if name.startswith(prefix)
    }


def pool_cosines(
    encoder: TransformerEncoder, layout: Layout, pools: Sequence[TokenPool], device: torch.device = _CPU
) -> list[Floats]:
    """Compute the cosine of the mean token states of context and candidate, each distinct text encoded separately."""
    texts: dict[bytes, Ids] = {}
    keys: list[tuple[bytes, list[bytes]]] = []
    for pool in pools:
        context = layout.context_ids(pool.context, None)
        texts[context.tobytes()] = context
        texts.update({ids.tobytes(): ids for ids in pool.candidates})
        keys.append((context.tobytes(), [ids.tobytes() for ids in pool.candidates]))
    vectors = dict(zip(texts, _text_vectors(encoder, layout, list(texts.values()), device), strict=True))
    return [
        np.array([float(vectors[context].astype(np.float64) @ vectors[key]) for key in candidates])
        for context, candidates in keys
    ]


def _text_vectors(
    encoder: TransformerEncoder, layout: Layout, texts: Sequence[Ids], device: torch.device
) -> list[npt.NDArray[np.float32]]:
    inputs = [np.concatenate([[layout.cls], ids, [layout.separator]], dtype=np.int32) for ids in texts]
    encoder.eval()
    with torch.inference_mode():
        parts = [
            text_means(encoder, inputs[start : start + _TEXTS_ON_DEVICE], device).cpu().numpy()
            for start in range(0, len(inputs), _TEXTS_ON_DEVICE)
        ]
    return [vector for part in parts for vector in part]
