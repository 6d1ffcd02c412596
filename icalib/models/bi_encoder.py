"""The bi-encoder: the model of the similarity part, and what contrastive domain pre-training trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icalib.data.encoding import Budget, Ids, Layout, TokenPool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transfer import forward_batches, to_device
from icalib.encoders.transformer import AbstractEncoder, BackboneEncoder, Batch, TransformerEncoder
from icalib.models.checkpoint import RankerConfig, load_ranker_config, load_weights, read_weights, save_ranker
from icalib.models.model import Model
from icalib.models.precision import Precision, autocast, round_linear_layers

Floats = npt.NDArray[np.float64]

PREFIX = "dual_encoder."  # starts the names of its weights in a checkpoint
_MAX_TOKENS = 8192
_TEXTS_ON_DEVICE = 16384  # whose vectors are on the device at a time
_FEW_TEXTS = 32  # of which a pass takes about as long as of one


class BiEncoder(Model):
    """Encodes contexts and responses separately, by all layers of the backbone; it can start a cross-encoder, too."""

    def __init__(self, backbone: str, budget: Budget, *, dropout: float | None = None, pretrained: bool = True) -> None:
        super().__init__()
        self.config = TransformerEncoder.Config(backbone=backbone, budget=budget, dropout=dropout)
        self.encoder: TransformerEncoder = self.config.build(num_intents=0, pretrained=pretrained)
        self.layout = layout_of(self.config, self.encoder)
        """The layout of contexts and responses."""

    def forward(self, contexts: Batch, responses: Batch) -> tuple[Tensor, Tensor]:
        """Return the vectors of contexts and responses, of length 1; [B, D] each, float32."""
        return unit_means(self.encoder, contexts), unit_means(self.encoder, responses)

    def vectors(
        self, texts: Sequence[Ids], precision: Precision = "fp32", *, dropout_seed: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the vector of each text [N, D], of length 1."""
        device = next(self.encoder.parameters()).device
        inputs = [self.layout.single(ids) for ids in texts]
        self.encoder.train(dropout_seed is not None)
        if dropout_seed is not None:
            torch.manual_seed(dropout_seed)
        with torch.inference_mode(), autocast(device, precision):
            parts = [
                _means(self.encoder, inputs[start : start + _TEXTS_ON_DEVICE], device).cpu().numpy()
                for start in range(0, len(inputs), _TEXTS_ON_DEVICE)
            ]
        self.encoder.eval()
        return np.concatenate(parts)

    def pool_cosines(self, pools: Sequence[TokenPool]) -> Floats:
        """Compute the cosine of context and candidate of each pair, [N], without dropout and in float32."""
        return self.crossed_cosines(pools, (None,), "fp32")[0][0]

    def crossed_cosines(
        self, pools: Sequence[TokenPool], dropout_seeds: Sequence[int | None], precision: Precision
    ) -> tuple[Floats, Floats]:
        """Compute the cosines of T passes as T Gaussian components: means and variances, [T, N] each.

        A context and a candidate have masks of their own, so that every pass of the one can meet every pass of the
        other: component t is the context's pass t beside the candidate's of the same half (even or odd, which stay
        independent).
        """
        texts: dict[bytes, Ids] = {}  # each distinct text is encoded once in a pass
        keys: list[tuple[bytes, bytes]] = []
        for pool in pools:
            context = self.layout.context_ids(pool.context, None)
            texts |= {ids.tobytes(): ids for ids in (context, *pool.candidates)}
            keys += [(context.tobytes(), ids.tobytes()) for ids in pool.candidates]
        number = {key: index for index, key in enumerate(texts)}
        context_N, candidate_N = (np.array([number[pair[side]] for pair in keys], np.int64) for side in (0, 1))
        passes = self._passes(list(texts.values()), dropout_seeds, precision)
        mean_TN, var_TN = (np.zeros((len(passes), len(keys))) for _ in range(2))
        for half in (range(0, len(passes), 2), range(1, len(passes), 2)):
            candidates = [passes[t][candidate_N].astype(np.float64) for t in half]
            for t in half:
                context_ND = passes[t][context_N].astype(np.float64)
                cosine_HN = np.stack([np.einsum("nd,nd->n", context_ND, candidate_ND) for candidate_ND in candidates])
                mean_TN[t] = cosine_HN.mean(0)
                var_TN[t] = cosine_HN.var(0, ddof=1) if len(half) > 1 else 0.0
        return mean_TN, var_TN

    def _passes(
        self, texts: list[Ids], dropout_seeds: Sequence[int | None], precision: Precision
    ) -> Sequence[npt.NDArray[np.float32]]:
        """Return the vectors of each pass, T times [N, D]; those of the few texts of a question are one batch."""
        first = dropout_seeds[0]
        if len(texts) <= _FEW_TEXTS and first is not None:  # each text of a batch has masks of its own
            vectors = self.vectors(texts * len(dropout_seeds), precision, dropout_seed=first)
            return list(vectors.reshape(len(dropout_seeds), len(texts), -1))
        return [self.vectors(texts, precision, dropout_seed=seed) for seed in dropout_seeds]

    @classmethod
    def load(cls, folder: Path) -> BiEncoder:
        """Load a checkpoint that `save` wrote."""
        config, weights = load_ranker_config(folder).encoder, read_weights(folder)
        dropout = config.dropout if isinstance(config, BackboneEncoder.Config) else None
        loaded = cls(config.backbone, config.budget, dropout=dropout, pretrained=False)
        load_weights(loaded.encoder, bi_encoder_weights(weights), folder)
        return loaded

    def start(self, folder: Path) -> None:
        """Copy the weights of a bi-encoder's checkpoint; those of another kind change nothing."""
        if found := bi_encoder_weights(read_weights(folder)):
            load_weights(self.encoder, found, folder)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a checkpoint for `start_weights`."""
        weights = {f"{PREFIX}{name.removeprefix('encoder.')}": tensor for name, tensor in state.items()}
        save_ranker(folder, RankerConfig(encoder=self.config), weights)


def layout_of(config: AbstractEncoder.Config, encoder: Any) -> Layout:
    """Return the layout of an encoder's inputs."""
    return Tokenizer(config.backbone).layout(
        config.budget,
        encoder.max_length,
        encoder.vocabulary,
        turn_separators=config.turn_separators,
        whole_pools=config.whole_pools,
    )


def open_bi_encoder(config: AbstractEncoder.Config, checkpoint: Path | None) -> BiEncoder:
    """Load a checkpoint; without one, the backbone of an encoder's settings."""
    return BiEncoder.load(checkpoint) if checkpoint else BiEncoder(config.backbone, config.budget)


def load_bi_encoder(folder: Path, precision: Precision, device: torch.device) -> BiEncoder:
    """Load a checkpoint to score with, in evaluation mode and with its weights in the precision of the passes."""
    loaded = BiEncoder.load(folder).to(device).eval()
    round_linear_layers(loaded.encoder, precision, device)
    return loaded


def bi_encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the bi-encoder in a checkpoint; empty without one."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in weights.items() if name.startswith(PREFIX)}


def _means(encoder: TransformerEncoder, texts: Sequence[Ids], device: torch.device) -> Tensor:
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
