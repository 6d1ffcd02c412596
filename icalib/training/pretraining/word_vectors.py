"""Word vectors trained on the corpus: word2vec's skip-gram with negative sampling (Mikolov et al. 2013)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import override

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.job import NOT_IN_DIGEST, Artifact
from icalib.core.seeding import child_seed
from icalib.data.encoding import Ids, TokenStore
from icalib.data.selection import Selection
from icalib.encoders.backbone import load_config
from icalib.encoders.transfer import to_device
from icalib.models.checkpoint import CHECKPOINT_VERSION, save_weights
from icalib.models.model import Model
from icalib.training.job import Training, TrainingJob
from icalib.training.settings import EpochsRequired, TrainingSettings

_NOISE_POWER = 0.75  # noise words are drawn from the unigram distribution raised to this power, as in word2vec
_NOISE_WORDS = 128  # per update, used for all its pairs: the expected loss is the same at a fraction of the cost
_COUNTED_TEXTS = 4096  # of which pairs are drawn to know how many a text has on average
_SUBSAMPLING = 1e-3  # t: a word of relative frequency f is kept with probability min(1, √(t/f)), as in word2vec


class WordVectors(Settings):
    """Settings of the training of word vectors."""

    training: EpochsRequired = TrainingSettings(
        learning_rate=2e-3, weight_decay=0.0, warmup_fraction=0.0, batch_size=64, max_grad_norm=None
    )
    """Optimiser and schedule; examples are texts, which aren't padded, so that `max_tokens_per_batch` has no effect.
    Without validation, the last weights are kept."""
    window: int = Field(default=5, ge=1)
    """Maximum number of neighbours on either side that a word predicts; the number is drawn for each word."""
    num_negatives: int = Field(default=5, ge=1)
    """k, the weight of the noise words relative to the true neighbour, as if each pair had k noise words of its own."""
    seed: int = 0
    """Seed of the word vectors, separate from the run's: runs of all seeds use the same vectors."""


class WordVectorJob(TrainingJob):
    """Trains word vectors."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 1  # pairs weigh the same in any number of parts

    settings: WordVectors
    backbone: Annotated[str, NOT_IN_DIGEST]
    """Model whose tokenizer made the tokens; the tokens' digest already depends on it."""
    width: int
    train_tokens: Artifact
    selection: Selection

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.settings.training, self.settings.seed

    def build(self, device: torch.device) -> Training:
        """Build the model, and its curriculum of texts of training pools, labelled or not."""
        store = TokenStore(self.train_tokens.path)
        rows = self.selection.rows("train", "all", store.column("label_order"))
        vocabulary = int(load_config(self.backbone).vocab_size)
        curriculum = SkipGramCurriculum(training_texts(store, rows), self.settings, vocabulary)
        return Training(SkipGram(vocabulary, self.width), curriculum)


class Pairs(NamedTuple):
    """P words, a neighbour of each, and M noise words that are used for all of them."""

    words_P: Tensor
    neighbours_P: Tensor
    noise_M: Tensor


class SkipGram(Model):
    """Vectors v of words and u of neighbours; the checkpoint contains v, under the name that encoders use."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        words = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleDict({"embedding": words})
        self.neighbours = nn.Embedding(vocabulary, width)
        nn.init.uniform_(words.weight, -0.5 / width, 0.5 / width)  # as word2vec starts
        nn.init.zeros_(self.neighbours.weight)

    def forward(self, pairs: Pairs, num_negatives: int) -> Tensor:
        """Compute the losses [P]: −log σ(v·u) − k E[log σ(−v·u)], the paper's Eq. 4 with the mean over `noise_M`."""
        with torch.autocast(pairs.words_P.device.type, enabled=False):
            words_PD, neighbours_PD = self.encoder["embedding"](pairs.words_P), self.neighbours(pairs.neighbours_P)
            noise_PM = words_PD @ self.neighbours(pairs.noise_M).T
            return -logsigmoid((words_PD * neighbours_PD).sum(1)) - num_negatives * logsigmoid(-noise_PM).mean(1)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Save the vectors of words; those of neighbours are only needed in training."""
        save_weights(folder, {name: tensor for name, tensor in state.items() if name.startswith("encoder.")})


class SkipGramCurriculum:
    """Batches of texts, from which each update draws pairs of neighbouring words; SettingError if no text has two."""

    def __init__(self, texts: Sequence[Ids], settings: WordVectors, vocabulary: int) -> None:
        self._texts, self._settings = [text for text in texts if len(text) > 1], settings
        if not self._texts:
            raise SettingError(
                "word vectors can't be trained: no text of the training pools has two words. Expected texts with two "
                "or more words. Disable word vectors with --set pretraining.word_vectors=null."
            )
        counts = np.bincount(np.concatenate(self._texts), minlength=vocabulary)
        noise = counts**_NOISE_POWER
        self._noise_cdf = np.cumsum(noise) / noise.sum()
        frequency = counts / counts.sum()
        self._kept = np.sqrt(_SUBSAMPLING / np.maximum(frequency, _SUBSAMPLING))
        self._pairs_per_text = self._count_pairs()

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the indices of the texts in each batch."""
        rng = np.random.default_rng(child_seed(self._settings.seed, "texts", epoch))
        order, size = rng.permutation(len(self._texts)).tolist(), self._settings.training.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]

    def losses(
        self, forward: Callable[..., Tensor], examples: Sequence[int], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the sum of the pairs' losses divided by how many pairs a text has on average in the corpus: every pair
        weighs the same, as in word2vec, in any number of workers and parts. Draws use torch's generator, seeded by the
        loop.
        """
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        words, neighbours = self._pairs([self._texts[index] for index in examples], rng)
        noise = np.searchsorted(self._noise_cdf, rng.random(_NOISE_WORDS))
        pairs = Pairs(*(to_device(torch.from_numpy(ids), device) for ids in (words, neighbours, noise)))
        losses_P = forward(pairs, self._settings.num_negatives)
        return "skip_gram", losses_P.sum() / self._pairs_per_text

    def _count_pairs(self) -> float:
        rng = np.random.default_rng(child_seed(self._settings.seed, "pairs"))
        chosen = rng.choice(len(self._texts), min(_COUNTED_TEXTS, len(self._texts)), replace=False)
        words, _ = self._pairs([self._texts[index] for index in chosen.tolist()], rng)
        return max(len(words), 1) / len(chosen)

    def _pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return words and neighbours after subsampling, each within the window that was drawn for its word."""
        words = np.concatenate(texts).astype(np.int64)
        text = np.repeat(np.arange(len(texts)), [len(ids) for ids in texts])
        kept = rng.random(len(words)) < self._kept[words]
        words, text = words[kept], text[kept]
        window = rng.integers(1, self._settings.window, len(words), endpoint=True)
        found: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        for distance in range(1, min(self._settings.window, len(words) - 1) + 1):
            left, right = slice(-distance), slice(distance, None)
            together = text[left] == text[right]
            for centre, neighbour in ((left, right), (right, left)):
                near = together & (window[centre] >= distance)
                found.append((words[centre][near], words[neighbour][near]))
        found.append((np.zeros(0, np.int64), np.zeros(0, np.int64)))  # if there are none
        return np.concatenate([words for words, _ in found]), np.concatenate([near for _, near in found])


def training_texts(store: TokenStore, rows: Sequence[int] | npt.NDArray[np.int64]) -> list[Ids]:
    """Return the distinct utterances and candidates of some pools."""
    texts: dict[bytes, Ids] = {}
    for pool in store.pools(rows):
        texts.update((ids.tobytes(), ids) for ids in chain(pool.context, pool.candidates))
    return list(texts.values())
