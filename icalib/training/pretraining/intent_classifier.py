"""A small intent classifier of single texts, trained on the utterances of the labelled pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from typing_extensions import override

from icalib.core.component import Settings
from icalib.core.job import Artifact
from icalib.core.seeding import child_seed
from icalib.data.encoding import Ids, TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Selection
from icalib.encoders.backbone import load_config
from icalib.encoders.iart import IART
from icalib.encoders.transfer import forward_batches, to_device
from icalib.metrics.catalogue import metric_tag
from icalib.models.checkpoint import CHECKPOINT_VERSION, read_weights, save_weights
from icalib.models.model import Model
from icalib.training.examples import batched
from icalib.training.job import Training, TrainingJob
from icalib.training.settings import EpochsRequired, TrainingSettings, measured_by

_WORDS = "encoder.embedding.weight"


class IntentLearning(Settings):
    """Settings of the training of the intent classifier."""

    training: Annotated[EpochsRequired, measured_by("NLL", "F1")] = TrainingSettings(
        epochs=50,
        patience=10,
        selection_metric="NLL",
        learning_rate=2e-3,
        warmup_fraction=0.0,
        schedule="constant",
        batch_size=32,
    )
    """Optimiser and schedule; examples are utterances. `selection_metric` can be NLL or F1, over all utterances and
    intents of the validation pools; if these have no intents, the last weights are kept."""
    seed: int = 0
    """Seed of the classifier, separate from the run's: runs of all seeds use the same classifier."""


class IntentClassifierJob(TrainingJob):
    """Trains an intent classifier."""

    version: ClassVar[int] = CHECKPOINT_VERSION

    settings: IntentLearning
    encoder: IART.Config
    num_intents: int
    train_tokens: Artifact
    validation_tokens: Artifact
    selection: Selection
    start: Artifact | None = None
    """Checkpoint of word vectors; None starts from random vectors."""

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.settings.training, self.settings.seed

    @override
    def build(self, device: torch.device) -> Training:
        learner = IntentLearner(self.encoder, self.num_intents)
        if self.start is not None:
            learner.load_word_vectors(self.start.path)
        train = labelled_utterances(self.train_tokens.path, "train", self.selection)
        held_out = labelled_utterances(self.validation_tokens.path, "validation", self.selection)
        curriculum = ClassifierCurriculum(train, self.settings, self.num_intents)
        return Training(learner, curriculum, ClassifierValidation(held_out, self, device) if held_out else None)


class LabelledText(NamedTuple):
    """An utterance and the indices of its intents."""

    ids: Ids
    intents: tuple[int, ...]

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids)


class Texts(NamedTuple):
    """N padded texts, the mask of their words, and their intents."""

    ids_NW: Tensor
    mask_NW: Tensor
    intents_NK: Tensor


class IntentLearner(Model):
    """IART's intent classifier, together with IART's word vectors, which are not trained."""

    def __init__(self, encoder: IART.Config, num_intents: int) -> None:
        super().__init__()
        vocabulary = int(load_config(encoder.backbone).vocab_size)
        words = nn.Embedding(vocabulary, encoder.embedding_size)
        nn.init.normal_(words.weight, std=0.1)
        classifier = encoder.untrained_classifier(vocabulary, num_intents)
        self.encoder = nn.ModuleDict({"embedding": words, "intent_classifier": classifier})
        words.requires_grad_(False)
        self._copy_word_vectors()

    def load_word_vectors(self, checkpoint: Path) -> None:
        """Load word vectors into the encoder and the classifier."""
        self.encoder["embedding"].load_state_dict({"weight": read_weights(checkpoint)[_WORDS]})
        self._copy_word_vectors()

    def _copy_word_vectors(self) -> None:
        classifier: Any = self.encoder["intent_classifier"]
        classifier.embedding.load_state_dict(self.encoder["embedding"].state_dict())

    def forward(self, texts: Texts) -> Tensor:
        """Compute the logits [N, K] of the intents."""
        return self.encoder["intent_classifier"](texts.ids_NW, texts.mask_NW)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Save the classifier and the word vectors under the names that IART uses."""
        save_weights(folder, state)


class ClassifierCurriculum:
    """Batches of utterances of similar length, with their intents."""

    def __init__(self, texts: Sequence[LabelledText], settings: IntentLearning, num_intents: int) -> None:
        self._texts, self._settings, self._num_intents = texts, settings, num_intents

    def batches(self, epoch: int) -> list[list[LabelledText]]:
        """Return all batches of an epoch."""
        rng = np.random.default_rng(child_seed(self._settings.seed, "utterances", epoch))
        return batched(self._texts, self._settings.training, rng)

    def losses(
        self, forward: Callable[..., Tensor], examples: Sequence[LabelledText], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the mean binary cross-entropy over the K intents, summed over the utterances."""
        texts = padded(examples, self._num_intents, device)
        losses_NK = binary_cross_entropy_with_logits(forward(texts).float(), texts.intents_NK, reduction="none")
        return "utterance_intents", losses_NK.mean(1).sum()


class ClassifierValidation:
    """F1 and NLL of the predicted intents of held-out utterances."""

    def __init__(self, texts: Sequence[LabelledText], job: IntentClassifierJob, device: torch.device) -> None:
        self._texts, self._num_intents, self._device = texts, job.num_intents, device
        self._max_tokens = job.loop_settings.max_tokens_per_batch

    def __call__(self, model: IntentLearner, rank: int, world_size: int) -> list[float]:
        """Return the sums of cross-entropy, its terms, and the true positive, predicted and gold intents of every
        world-size-th utterance.
        """
        texts = self._texts[rank::world_size]
        sums = np.zeros(5)
        with torch.inference_mode():
            for batch in forward_batches([len(text.ids) for text in texts], self._max_tokens, self._device):
                inputs = padded([texts[int(index)] for index in batch], self._num_intents, self._device)
                logits_NK, gold_NK = model(inputs).double(), inputs.intents_NK.bool()
                losses = binary_cross_entropy_with_logits(logits_NK, inputs.intents_NK.double(), reduction="sum")
                predicted_NK = logits_NK > 0
                counts = (float(chosen.sum()) for chosen in (predicted_NK & gold_NK, predicted_NK, gold_NK))
                sums += [float(losses), gold_NK.numel(), *counts]
        return sums.tolist()

    def metrics(self, results: Sequence[list[float]]) -> dict[str, float]:
        """Compute micro-averaged F1 at probability ½, and the mean NLL per utterance and intent."""
        loss, terms, right, predicted, gold = np.sum(results, axis=0).tolist()
        metrics = {"F1": 2 * right / (predicted + gold), "NLL": loss / terms}
        return {metric_tag(name): value for name, value in metrics.items()}


def padded(texts: Sequence[LabelledText], num_intents: int, device: torch.device) -> Texts:
    """Return a padded batch on a device."""
    width = max(1, *(len(text.ids) for text in texts))
    ids_NW = np.zeros((len(texts), width), np.int64)
    mask_NW = np.zeros_like(ids_NW, dtype=np.bool_)
    intents_NK = np.zeros((len(texts), num_intents), np.float32)
    for row, text in enumerate(texts):
        ids_NW[row, : len(text.ids)] = text.ids
        mask_NW[row, : len(text.ids)] = True
        intents_NK[row, list(text.intents)] = 1.0
    return Texts(*(to_device(torch.from_numpy(array), device) for array in (ids_NW, mask_NW, intents_NK)))


def labelled_utterances(tokens: Path, split: Split, selection: Selection) -> list[LabelledText]:
    """Return the distinct utterances with intents in the contexts of a split's (in training, labelled) pools."""
    store = TokenStore(tokens)
    rows = selection.rows(split, "labelled" if split == "train" else "all", store.column("label_order"))
    found: dict[tuple[bytes, tuple[int, ...]], LabelledText] = {}
    for pool in store.pools(rows):
        for ids, intents in zip(pool.context, pool.intents, strict=True):
            if len(intents) and len(ids):
                text = LabelledText(ids, tuple(intents))
                found[ids.tobytes(), text.intents] = text
    return list(found.values())
