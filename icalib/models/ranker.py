"""The model: one encoder shared by the answer head, the intent head and the heads of post-training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from icalib.core.errors import RunFolderError
from icalib.data.encoding import Encoded as EncodedIds
from icalib.data.encoding import Layout, pad
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.bi_encoder import BiEncoder
from icalib.encoders.spectral_norm import warm_up
from icalib.encoders.transformer import Batch, Encoded
from icalib.heads.head import LogitPosterior, PosteriorHead
from icalib.models.checkpoint import POSTERIOR, REPEAT, load_ranker_config, read_posterior, read_weights, save_ranker
from icalib.models.config import RankerConfig
from icalib.models.model import Model

ANSWER = "answer"
"""The answer head's name among those that can be asked a question."""


class SimilarityStart(nn.Module):
    """A logit from the similarity of the two segments: the mean function that the head corrects."""

    def __init__(self) -> None:
        super().__init__()
        # cos of MiniLM's segment means lies around 0.2 to 0.7: slope 5 spreads that over about ±1 logit.
        self.slope = nn.Parameter(torch.tensor([5.0]))  # 1-d: DeepSpeed broadcasts no 0-d parameter
        self.offset = nn.Parameter(torch.tensor([-3.0]))

    def forward(self, similarity_B: Tensor) -> Tensor:
        """Logits [B]."""
        return self.slope * similarity_B + self.offset


class MaskedWordHead(nn.Module):
    """BERT's masked-word head with the decoder tied to the word embeddings."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        # An identity start keeps the pre-trained states readable from the first step on.
        nn.init.eye_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states_ND: Tensor, embeddings_VD: Tensor) -> Tensor:
        """Logits over the vocabulary [N, V] of N hidden words."""
        hidden = self.norm(nn.functional.gelu(self.dense(states_ND)))
        if len(embeddings_VD) > len(self.bias):  # intents are no words; a needless slice costs a copy of the gradient
            embeddings_VD = embeddings_VD[: len(self.bias)]
        return nn.functional.linear(hidden, embeddings_VD, self.bias)


class Ranker(Model):
    """Scores pairs, and predicts intents and masked words.

    Args:
        config: what it is made of.
        pretrained: start from the backbone's weights; False where a checkpoint's weights follow.
        masked_words: whether to have the masked-word head (post-training only).
        questions: classes of each linear head on [CLS] that only post-training asks, by name.
    """

    def __init__(
        self,
        config: RankerConfig,
        *,
        pretrained: bool = True,
        masked_words: bool = False,
        questions: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder: Any = config.encoder.build(num_intents=len(config.intents), pretrained=pretrained)
        self.answer_head: Any = config.head.build(width=self.encoder.width)
        self.similarity_start = SimilarityStart() if config.similarity_start != "none" else None
        self.bi_encoder = (
            BiEncoder(config.encoder, pretrained=pretrained) if config.similarity_start == "both" else None
        )
        reads_intents = config.intents and config.encoder.has_backbone
        self.intent_head = _small_linear(self.encoder.state_width, len(config.intents)) if reads_intents else None
        self.masked_word_head = (
            MaskedWordHead(self.encoder.state_width, self.encoder.vocabulary) if masked_words else None
        )
        self.question_heads = nn.ModuleDict(
            {name: _small_linear(self.encoder.width, classes) for name, classes in (questions or {}).items()}
        )

    def forward(
        self, task: Literal["answer", "intent", "question"], batch: Batch, **inputs: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """What training needs of a task: one entry point, so that wrappers that shard weights see every pass.

        answer: the loss of each pair [B] from `labels_B` and `loss`. intent: logits [B, K]. question: logits [B, K] of
        a question's `head`, or [B] of the answer head; with `places_N2` (batch row, position) also the word logits
        [N, V] there.

        The heads that the task doesn't need take part with weight 0. So every parameter has a gradient in every
        update, and optimisers that skip missing gradients and those that don't (ZeRO's) do the same.
        """
        encoded = self._encode(batch)
        if task == "intent":
            return self._intents(encoded, batch) + 0.0 * self._answer(self.answer_head.touch, encoded)
        if task == "question":
            logits = self._asked(encoded, inputs["head"])
            places_N2 = inputs.get("places_N2")
            return logits if places_N2 is None else (logits, self._masked_words(encoded, places_N2))
        losses = self._answer(self.answer_head.losses, encoded, inputs["labels_B"], inputs["loss"])
        return losses if self.intent_head is None else losses + 0.0 * self._intents(encoded, batch).sum()

    def answer_logits(self, batch: Batch) -> Tensor:
        """Logits [B] of the candidates being right."""
        return self._answer(self.answer_head, self._encode(batch))

    def answer_posterior(self, batch: Batch) -> LogitPosterior:
        """The posterior of the logits [S, B]; only for heads that have one."""
        return self._answer(self.answer_head.posterior, self._encode(batch))

    def observe(self, batch: Batch, labels_B: Tensor) -> None:
        """Show the head some pairs that its posterior is to be computed from."""
        self._answer(self.answer_head.observe, self._encode(batch), labels_B)

    def start_epoch(self) -> None:
        """The answer head may count from here."""
        self.answer_head.start_epoch()

    def start_part(self, *, counted: bool) -> None:
        """The answer head may count what it sees."""
        self.answer_head.start_part(counted=counted)

    @property
    def spectral_norms(self) -> Mapping[str, float]:
        """Those of the encoder's bounded layers."""
        return self.encoder.spectral_norms

    @property
    def weights_read_elsewhere(self) -> Sequence[Tensor]:
        """The word embeddings, which the tied decoder of the masked-word head reads."""
        return () if self.masked_word_head is None else (self.encoder.backbone.get_input_embeddings().weight,)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a checkpoint that `load_ranker` reads.

        After other questions than the answer's it is one that `start_weights` alone reads: the answer head has learnt
        nothing then, so each run starts with its own.
        """
        if len(self.question_heads):
            state = {name: tensor for name, tensor in state.items() if name.startswith("encoder.")}
        save_ranker(folder, self.config, state)

    @property
    def posterior_head(self) -> PosteriorHead | None:
        """The answer head, if it has a posterior."""
        return self.answer_head if isinstance(self.answer_head, PosteriorHead) else None

    def _encode(self, batch: Batch) -> Encoded:
        encoded: Encoded = self.encoder(batch)
        if self.bi_encoder is None:
            return encoded
        return encoded._replace(similarity_B=encoded.similarity_B + self.bi_encoder(batch))

    def _answer(self, ask: Callable[..., Any], encoded: Encoded, *rest: Any) -> Any:
        """Ask the answer head something of encoded pairs, in float32."""
        with torch.autocast(encoded.features_BD.device.type, enabled=False):
            mean_B = (
                self.similarity_start(encoded.similarity_B)
                if self.similarity_start is not None
                else torch.zeros_like(encoded.similarity_B)
            )
            return ask(encoded.features_BD.float(), mean_B, *rest)

    def intent_logits(self, batch: Batch) -> Tensor:
        """Logits [B, K] of the last utterance's intents, read at the last separator."""
        return self._intents(self.encoder(batch), batch)

    def _intents(self, encoded: Encoded, batch: Batch) -> Tensor:
        states = encoded.states_BLD
        last = states[torch.arange(len(states), device=states.device), batch.lengths_B - 1]
        assert self.intent_head is not None
        with torch.autocast(states.device.type, enabled=False):
            return self.intent_head(last.float())

    def _asked(self, encoded: Encoded, name: str) -> Tensor:
        """Logits of the question of one head."""
        logits = {ANSWER: self._answer(self.answer_head, encoded)}
        with torch.autocast(encoded.features_BD.device.type, enabled=False):
            logits |= {other: head(encoded.features_BD.float()) for other, head in self.question_heads.items()}
        asked = logits.pop(name)
        return asked + 0.0 * sum(idle.sum() for idle in logits.values()) if logits else asked

    def _masked_words(self, encoded: Encoded, places_N2: Tensor) -> Tensor:
        assert self.masked_word_head is not None
        hidden = encoded.states_BLD[places_N2[:, 0], places_N2[:, 1]]
        return self.masked_word_head(hidden, self.encoder.backbone.get_input_embeddings().weight)

    @property
    def layout(self) -> Layout:
        """How inputs are written for this encoder."""
        encoder = self.config.encoder
        return Tokenizer(encoder.backbone).layout(
            encoder.budget,
            self.encoder.max_length,
            self.encoder.vocabulary,
            turn_separators=encoder.turn_separators,
            whole_pools=encoder.whole_pools,
        )


def _small_linear(width: int, outputs: int) -> nn.Linear:
    """A linear layer that starts as BERT's do."""
    layer = nn.Linear(width, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


def make_batch(encoded: Sequence[EncodedIds], layout: Layout, device: torch.device) -> Batch:
    """A padded batch on a device."""
    return Batch(*(torch.from_numpy(array) for array in pad(encoded, layout.padding))).to(device)


def load_ranker(folder: Path) -> Ranker:
    """A ranker with a checkpoint's weights, and its posterior where the checkpoint holds one.

    Raises:
        RunFolderError: the weights are damaged or don't fit the configuration.
        PosteriorError: the posterior was computed for other weights.
    """
    ranker = Ranker(load_ranker_config(folder), pretrained=False)
    try:
        ranker.load_state_dict(read_weights(folder))
    except RuntimeError as error:
        raise RunFolderError(
            f"the weights in {folder} don't fit its ranker.json ({str(error).splitlines()[-1].strip()}). {REPEAT}"
        ) from error
    if ranker.posterior_head is not None and (folder / POSTERIOR).is_file():
        ranker.posterior_head.load_posterior_state(read_posterior(folder))
    return ranker


def start_weights(ranker: Ranker, folder: Path) -> None:
    """Copy a checkpoint's weights into a ranker that may have more parts (new heads, more intent tokens)."""
    own, given = ranker.state_dict(), read_weights(folder)
    for name, tensor in given.items():
        if name in own and own[name].shape == tensor.shape:
            own[name].copy_(tensor)
        elif name in own and own[name].shape[1:] == tensor.shape[1:]:
            own[name][: len(tensor)].copy_(tensor[: len(own[name])])  # word embeddings without or with intents
    warm_up(ranker.encoder, {name.removeprefix("encoder.") for name in given})
