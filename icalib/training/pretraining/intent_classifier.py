"""A small classifier of the intents of single texts, learnt from the labelled pools' utterances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from icalib.core.component import Settings
from icalib.core.job import Artifact
from icalib.core.seeding import child_seed
from icalib.data.batching import shuffled_batches
from icalib.data.encoding import Ids, TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Selection
from icalib.encoders.backbone import load_config
from icalib.encoders.iart import IART, intent_classifier
from icalib.metrics.catalogue import metric_tag
from icalib.models.checkpoint import CHECKPOINT_VERSION, read_weights, save_weights
from icalib.models.model import Model
from icalib.models.precision import forward_batches
from icalib.training.job import Training, TrainingJob
from icalib.training.settings import TrainingSettings

_WORDS = "encoder.embedding.weight"


class IntentLearning(Settings):
    """How the intent classifier is learnt."""

    training: TrainingSettings = TrainingSettings(
        epochs=50,
        patience=10,
        selection_metric="NLL",
        learning_rate=2e-3,
        warmup_fraction=0.0,
        schedule="constant",
        batch_size=32,
    )
    """Optimiser and schedule; examples are utterances. `selection_metric` may be NLL or F1, both over all utterances
    and intents of the validation pools; without intents there the last weights are kept."""
    seed: int = 0
    """Its own seed: the classifier serves the runs of all seeds."""


class IntentClassifierJob(TrainingJob):
    """One training of an intent classifier."""

    version: ClassVar[int] = CHECKPOINT_VERSION

    settings: IntentLearning
    encoder: IART.Config
    num_intents: int
    train_tokens: Artifact
    validation_tokens: Artifact
    selection: Selection
    start: Artifact | None = None
    """Checkpoint of word vectors; None learns them from nothing."""

    @property
    def loop_settings(self) -> TrainingSettings:
        """Optimiser and schedule."""
        return self.settings.training

    @property
    def loop_seed(self) -> int:
        """The seed of all draws."""
        return self.settings.seed

    def build(self, device: torch.device) -> Training:
        """The model, and what it learns from and is measured on."""
        learner = IntentLearner(self.encoder, self.num_intents)
        if self.start is not None:
            learner.start_from(self.start.path)
        train = labelled_utterances(self.train_tokens.path, "train", self.selection)
        held_out = labelled_utterances(self.validation_tokens.path, "validation", self.selection)
        curriculum = IntentCurriculum(train, self.settings, self.num_intents)
        return Training(learner, curriculum, IntentValidation(held_out, self, device) if held_out else None)


class LabelledText(NamedTuple):
    """An utterance and the numbers of its intents."""

    ids: Ids
    intents: tuple[int, ...]


class Texts(NamedTuple):
    """N padded texts, where they have words, and their intents."""

    ids_NW: Tensor
    mask_NW: Tensor
    intents_NK: Tensor


class IntentLearner(Model):
    """The classifier as IART holds it, beside IART's own word vectors, which pass through unchanged."""

    def __init__(self, encoder: IART.Config, num_intents: int) -> None:
        super().__init__()
        vocabulary = int(load_config(encoder.backbone).vocab_size)
        words = nn.Embedding(vocabulary, encoder.embedding_size)
        nn.init.normal_(words.weight, std=0.1)
        self.encoder = nn.ModuleDict(
            {"embedding": words, "intent_classifier": intent_classifier(encoder, vocabulary, num_intents)}
        )
        words.requires_grad_(False)
        self._share_words()

    def start_from(self, checkpoint: Path) -> None:
        """Take word vectors for both."""
        self.encoder["embedding"].load_state_dict({"weight": read_weights(checkpoint)[_WORDS]})
        self._share_words()

    def _share_words(self) -> None:
        words: Any = self.encoder["embedding"]
        classifier: Any = self.encoder["intent_classifier"]
        classifier.embedding.load_state_dict(words.state_dict())

    def forward(self, texts: Texts) -> Tensor:
        """Logits [N, K]."""
        return self.encoder["intent_classifier"](texts.ids_NW, texts.mask_NW)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Keep both, under the names that IART has for them."""
        save_weights(folder, state)


class IntentCurriculum:
    """Utterances with intents, in batches of like length."""

    def __init__(self, texts: Sequence[LabelledText], settings: IntentLearning, num_intents: int) -> None:
        self._texts, self._settings, self._num_intents = texts, settings, num_intents

    def batches(self, epoch: int) -> list[list[LabelledText]]:
        """All batches of an epoch."""
        training = self._settings.training
        rng = np.random.default_rng(child_seed(self._settings.seed, "utterances", epoch))
        lengths = [len(text.ids) for text in self._texts]
        batches = shuffled_batches(lengths, training.batch_size, training.max_tokens_per_batch, rng)
        return [[self._texts[int(place)] for place in batch] for batch in batches]

    def losses(
        self, forward: Callable[..., Tensor], examples: Sequence[LabelledText], device: torch.device
    ) -> tuple[str, Tensor]:
        """Summed over the utterances: mean cross-entropy of the K intents."""
        texts = padded(examples, self._num_intents, device)
        losses_NK = binary_cross_entropy_with_logits(forward(texts).float(), texts.intents_NK, reduction="none")
        return "utterance_intents", losses_NK.mean(1).sum()


class IntentValidation:
    """How well the intents of held-out utterances are told."""

    def __init__(self, texts: Sequence[LabelledText], job: IntentClassifierJob, device: torch.device) -> None:
        self._texts, self._num_intents, self._device = texts, job.num_intents, device
        self._max_tokens = job.loop_settings.max_tokens_per_batch

    def __call__(self, model: IntentLearner, rank: int, world_size: int) -> npt.NDArray[np.float64]:
        """Of every world-size-th utterance together: summed cross-entropy, its terms; right, found and real intents."""
        texts = self._texts[rank::world_size]
        sums = np.zeros(5)
        with torch.inference_mode():
            for batch in forward_batches([len(text.ids) for text in texts], self._max_tokens, self._device):
                inputs = padded([texts[int(place)] for place in batch], self._num_intents, self._device)
                logits_NK, real_NK = model(inputs).double(), inputs.intents_NK.bool()
                losses = binary_cross_entropy_with_logits(logits_NK, inputs.intents_NK.double(), reduction="sum")
                found_NK = logits_NK > 0
                counts = [(found_NK & real_NK).sum(), found_NK.sum(), real_NK.sum()]
                sums += [float(losses), real_NK.numel(), *(float(count) for count in counts)]
        return sums

    def figures(self, shares: Sequence[npt.NDArray[np.float64]]) -> dict[str, float]:
        """Micro-averaged F1 at probability ½, and NLL an intent."""
        loss, terms, right, found, real = np.sum(shares, axis=0).tolist()
        figures = {"F1": 2 * right / (found + real), "NLL": loss / terms}
        return {metric_tag(name): value for name, value in figures.items()}


def padded(texts: Sequence[LabelledText], num_intents: int, device: torch.device) -> Texts:
    """A batch on a device."""
    width = max(1, *(len(text.ids) for text in texts))
    ids_NW = np.zeros((len(texts), width), np.int64)
    mask_NW = np.zeros_like(ids_NW, dtype=np.bool_)
    intents_NK = np.zeros((len(texts), num_intents), np.float32)
    for row, text in enumerate(texts):
        ids_NW[row, : len(text.ids)] = text.ids
        mask_NW[row, : len(text.ids)] = True
        intents_NK[row, list(text.intents)] = 1.0
    return Texts(*(torch.from_numpy(array).to(device) for array in (ids_NW, mask_NW, intents_NK)))


def labelled_utterances(tokens: Path, split: Split, selection: Selection) -> list[LabelledText]:
    """Utterances with intents in the contexts of a split's pools (of the labelled ones in training), each once."""
    store = TokenStore(tokens)
    rows = selection.rows(split, "labelled" if split == "train" else "all", store.column("label_order"))
    found: dict[tuple[bytes, tuple[int, ...]], LabelledText] = {}
    for pool in store.pools(rows):
        for ids, intents in zip(pool.context, pool.intents, strict=True):
            if len(intents) and len(ids):
                text = LabelledText(ids, tuple(intents))
                found[ids.tobytes(), text.intents] = text
    return list(found.values())
