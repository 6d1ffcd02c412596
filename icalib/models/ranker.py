"""The ranker: one encoder with an answer head, an intent head and the heads of domain pre-training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.data.encoding import Encoded as EncodedIds
from icalib.data.encoding import Intents, Layout, TokenPool
from icalib.encoders.spectral_norm import warm_up
from icalib.encoders.transformer import Batch, Encoded
from icalib.heads.head import LogitPosterior, PosteriorHead
from icalib.models import checkpoint
from icalib.models.bi_encoder import PREFIX, bi_encoder_weights, layout_of
from icalib.models.checkpoint import RankerConfig, load_ranker_config, read_weights
from icalib.models.model import Model
from icalib.models.precision import Precision, round_linear_layers


class MaskedWordHead(nn.Module):
    """BERT's head for masked-token prediction, with the decoder tied to the word embeddings.

    These are narrower than the states in ELECTRA and ALBERT.
    """

    def __init__(self, width: int, embedding_width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, embedding_width)
        self.norm = nn.LayerNorm(embedding_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        # Identity initialisation, so that the decoder can read the pre-trained states from the first step on.
        nn.init.eye_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states_ND: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Compute logits [N, V] over the vocabulary for N masked tokens."""
        hidden = self.norm(nn.functional.gelu(self.dense(states_ND)))
        # The embeddings of intents aren't decoded. Slicing only if needed avoids a copy of the gradient.
        if len(embeddings_VD) > len(self.bias):
            embeddings_VD = embeddings_VD[: len(self.bias)]
        return nn.functional.linear(hidden, embeddings_VD, self.bias)


class Ranker(Model):
    """Scores pairs, and predicts intents and masked tokens.

    Domain pre-training adds heads: for `masked_words`, and linear ones on [CLS] by name, `task_heads` being their
    classes. Without `pretrained` the backbone's weights are left to a checkpoint.
    """

    def __init__(
        self,
        config: RankerConfig,
        *,
        pretrained: bool = True,
        masked_words: bool = False,
        task_heads: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder: Any = config.encoder.build(num_intents=len(config.intents), pretrained=pretrained)
        self.layout = layout_of(config.encoder, self.encoder)
        """The layout of this encoder's inputs."""
        self.answer_head: Any = config.head.build(width=self.encoder.width)
        if config.starts_at_zero:
            self.answer_head.start_at_mean()
        reads_intents = config.intents and config.encoder.has_backbone
        self.intent_head = _small_linear(self.encoder.state_width, len(config.intents)) if reads_intents else None
        self.masked_word_head: MaskedWordHead | None = None
        if masked_words:
            words = self.encoder.backbone.get_input_embeddings().embedding_dim
            self.masked_word_head = MaskedWordHead(self.encoder.state_width, words, self.encoder.vocabulary)
        heads = {name: _small_linear(self.encoder.width, classes) for name, classes in (task_heads or {}).items()}
        self.task_heads = nn.ModuleDict(heads)

    def forward(
        self, task: Literal["answer", "represent", "intent", "classify"], batch: Batch, **inputs: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Run the forward pass of a training task.

        Engines that shard weights see every pass here. Heads that a task doesn't need take part with weight 0: so every
        parameter has a gradient in every update, and optimisers that skip missing gradients behave like ZeRO's.

        `answer` gives the loss of each pair [B] from `labels_B` and `loss`; `represent` what the answer head's
        `joint_loss` reads [B, R]; `intent` logits [B, K]; `classify` those of the task head `head`, and with
        `positions_N2` (batch row, position) also the token logits [N, V] at these positions.
        """
        encoded: Encoded = self.encoder(batch)
        if task == "intent":
            return self._intents(encoded, batch) + 0.0 * self._answer(self.answer_head.touch, encoded, batch)
        if task == "classify":
            logits = self._class_logits(encoded, batch, inputs["head"])
            positions_N2 = inputs.get("positions_N2")
            return logits if positions_N2 is None else (logits, self._token_logits(encoded, positions_N2))
        if task == "represent":
            found = self._answer(self.answer_head.represent, encoded, batch)
        else:
            found = self._answer(self.answer_head.losses, encoded, batch, inputs["labels_B"], inputs["loss"])
        return found if self.intent_head is None else found + 0.0 * self._intents(encoded, batch).sum()

    def answer_logits(self, batch: Batch) -> Tensor:
        """Compute the logits [B] of the candidates being right."""
        return self._answer(self.answer_head, self.encoder(batch), batch)

    def answer_posterior(self, batch: Batch) -> LogitPosterior:
        """Compute the posterior of the logits [S, B]; only for heads with a posterior."""
        return self._answer(self.answer_head.posterior, self.encoder(batch), batch)

    def observe(self, batch: Batch, labels_B: Tensor) -> None:
        """Let the head observe pairs that its posterior is computed from."""
        self._answer(self.answer_head.observe, self.encoder(batch), batch, labels_B)

    @override
    def start_epoch(self) -> None:
        self.answer_head.start_epoch()

    @override
    def start_part(self, *, counted: bool) -> None:
        self.answer_head.start_part(counted=counted)

    @override
    def end_update(self) -> None:
        self.answer_head.end_update()

    @property
    def weights_read_elsewhere(self) -> Sequence[Tensor]:
        """The word embeddings, if the tied decoder of the head for masked tokens reads them."""
        return () if self.masked_word_head is None else (self.encoder.backbone.get_input_embeddings().weight,)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a checkpoint for `load_ranker`; of a pre-trained ranker the encoder alone, for `start_weights`."""
        if len(self.task_heads):
            state = {name: tensor for name, tensor in state.items() if name.startswith("encoder.")}
        checkpoint.save_ranker(folder, self.config, state)

    @property
    def posterior_head(self) -> PosteriorHead | None:
        """The answer head if it has a posterior, else None."""
        return self.answer_head if isinstance(self.answer_head, PosteriorHead) else None

    def _answer(self, method: Callable[..., Any], encoded: Encoded, batch: Batch, *rest: Any) -> Any:
        with torch.autocast(encoded.features_BD.device.type, enabled=False):
            features_BD = encoded.features_BD.float()
            offset_B = torch.zeros_like(features_BD[:, 0]) if batch.offset_B is None else batch.offset_B
            return method(features_BD, offset_B, *rest)

    def intent_logits(self, batch: Batch) -> Tensor:
        """Compute the logits [B, K] of the last utterance's intents, from the state of the last separator."""
        return self._intents(self.encoder(batch), batch)

    def _intents(self, encoded: Encoded, batch: Batch) -> Tensor:
        states = encoded.states_BLD
        last = states[torch.arange(len(states), device=states.device), batch.lengths_B - 1]
        assert self.intent_head is not None
        with torch.autocast(states.device.type, enabled=False):
            return self.intent_head(last.float())

    def _class_logits(self, encoded: Encoded, batch: Batch, name: str) -> Tensor:
        with torch.autocast(encoded.features_BD.device.type, enabled=False):
            logits = {other: head(encoded.features_BD.float()) for other, head in self.task_heads.items()}
        unused = [self._answer(self.answer_head, encoded, batch), *(logits[other] for other in logits if other != name)]
        return logits[name] + 0.0 * sum(one.sum() for one in unused)

    def _token_logits(self, encoded: Encoded, positions_N2: Tensor) -> Tensor:
        assert self.masked_word_head is not None
        hidden = encoded.states_BLD[positions_N2[:, 0], positions_N2[:, 1]]
        return self.masked_word_head(hidden, self.encoder.backbone.get_input_embeddings().weight)


def _small_linear(width: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(width, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True)
class PoolInputs:
    """Inputs of all candidates of some pools: one per candidate, or one per pool.

    Pairs are in the order of pools and candidates; input i has the pairs `bounds[i]:bounds[i + 1]`.
    """

    inputs: list[EncodedIds]
    bounds: list[int]

    @classmethod
    def of(cls, pools: Sequence[TokenPool], layout: Layout, intents: Sequence[Intents] | None) -> PoolInputs:
        """Build the inputs of pools; with the `intents` of their utterances, in the intent view."""
        inputs: list[EncodedIds] = []
        bounds = [0]
        for index, pool in enumerate(pools):
            encoded = layout.inputs(pool.context, intents[index] if intents is not None else None, pool.candidates)
            inputs += encoded
            pairs_per_input = len(pool.candidates) // len(encoded)
            bounds += [bounds[-1] + pairs_per_input * count for count in range(1, len(encoded) + 1)]
        return cls(inputs, bounds)

    @property
    def num_pairs(self) -> int:
        """Number of pairs, N."""
        return self.bounds[-1]

    def pairs(self, batch: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the indices of the pairs of some inputs, in the inputs' order."""
        return np.concatenate([np.arange(self.bounds[index], self.bounds[index + 1]) for index in batch])


def make_batch(
    encoded: Sequence[EncodedIds], layout: Layout, device: torch.device, offset_B: npt.ArrayLike | None = None
) -> Batch:
    """Return a padded batch on a device, with the offsets of its pairs."""
    batch = Batch.of(encoded, layout.padding)
    if offset_B is not None:
        batch = batch._replace(offset_B=torch.from_numpy(np.asarray(offset_B, np.float32)))
    return batch.to(device)


def load_ranker(folder: Path) -> Ranker:
    """Load a ranker with its posterior, if any; a RunFolderError or PosteriorError if these don't fit each other."""
    ranker = Ranker(load_ranker_config(folder), pretrained=False)
    checkpoint.load_weights(ranker, read_weights(folder), folder)
    if ranker.posterior_head is not None and (folder / checkpoint.POSTERIOR).is_file():
        ranker.posterior_head.load_posterior_state(checkpoint.read_posterior(folder))
    return ranker


def load_for_scoring(folder: Path, precision: Precision, device: torch.device) -> Ranker:
    """Load a ranker to score with under autocast, in evaluation mode and with linear weights in its precision."""
    ranker = load_ranker(folder).to(device).eval()
    round_linear_layers(ranker.encoder, precision, device)
    return ranker


def start_weights(ranker: Ranker, folder: Path) -> None:
    """Copy a checkpoint's weights, or a bi-encoder's, into a ranker, which may have other heads and intent tokens."""
    own, given = ranker.state_dict(), read_weights(folder)
    if any(name.startswith(PREFIX) for name in given):
        given = {f"encoder.{name}": tensor for name, tensor in bi_encoder_weights(given).items()}
    for name, tensor in given.items():
        if name in own and own[name].shape == tensor.shape:
            own[name].copy_(tensor)
        elif name in own and tensor.ndim > 1 and own[name].shape[1:] == tensor.shape[1:]:
            own[name][: len(tensor)].copy_(tensor[: len(own[name])])  # word embeddings with other numbers of intents
    warm_up(ranker.encoder, {name.removeprefix("encoder.") for name in given})
