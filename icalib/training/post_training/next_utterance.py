"""Next-utterance discrimination by the answer head: the post-training that methods share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from icalib.core.seeding import child_seed
from icalib.data.bm25 import bm25_matrices
from icalib.data.encoding import Encoded, Ids, Layout, TokenStore
from icalib.models.ranker import ANSWER
from icalib.training.post_training.task import AbstractPostTraining, Asked, batched
from icalib.training.post_training.windows import Window, Windows
from icalib.training.settings import TrainingSettings

_NUM_SIMILAR = 9  # as many as a pool of ten has


class _Example(NamedTuple):
    window: Window
    other: Window | None  # where the wrong utterance comes from; None for the true next one
    length: int
    number: int


@final
class NextUtterance(AbstractPostTraining):
    """Is this the next utterance? Asked of the answer head, so that the head itself has a start.

    What differs from BERT_FP's question (Han et al. 2021), see `UtteranceRelevance`: it is one of yes or no, and by
    default no wrong utterance comes from the same dialogue and no word is hidden, which BERT_FP's 25 epochs can afford
    and one epoch can't.
    """

    class Config(AbstractPostTraining.Config):
        """Settings of next-utterance discrimination."""

        training: TrainingSettings = TrainingSettings(
            epochs=1, learning_rate=5e-5, head_learning_rate=1e-3, batch_size=32, max_tokens_per_batch=4096
        )
        """Optimiser and schedule; there is no validation, the last weights are kept."""
        max_windows: int | None = Field(default=8000, ge=1)
        """Next-utterance windows an epoch, drawn anew each epoch; None takes all."""
        wrong_from_same_dialogue: float = Field(default=0.0, ge=0, le=1)
        """Share of the wrong utterances that come from the same dialogue, the others come from another one. BERT_FP has
        half of them; with little training they teach that what the context says is wrong."""
        wrong_from_other_dialogues: Literal["random", "bm25"] = "random"
        """`random`: any. `bm25`: one of the nine that resemble the true next utterance most, as the wrong candidates of
        pools do; harder, and some are right answers."""
        masked_word_weight: float = Field(default=0.0, ge=0)
        """Weight of the masked-word loss beside the next-utterance loss; 0 leaves words unmasked. BERT_FP's is 1; with
        little training the hidden words cost the next-utterance task more than they teach."""

    def __init__(self, config: Config, *, store: TokenStore, rows: Sequence[int], layout: Layout) -> None:
        self.config, self._layout = config, layout
        self._windows = Windows(store, rows)
        self._similar = (
            _SimilarTexts([self._windows.target(window) for window in self._windows.windows], self._windows.dialogues)
            if config.wrong_from_other_dialogues == "bm25"
            else None
        )

    def batches(self, epoch: int) -> list[list[_Example]]:
        """An epoch's batches: as many true as wrong next utterances."""
        rng = np.random.default_rng(child_seed(self.config.seed, "windows", epoch))
        examples: list[_Example] = []
        for number in self._windows.sample(self.config.max_windows, rng):
            window = self._windows.windows[number]
            context = sum(map(len, self._windows.context(window)))
            for other in (None, self._wrong(number, rng)):
                length = context + len(self._windows.target(other or window))
                examples.append(_Example(window, other, length, number))
        return batched(examples, self.config.training, rng)

    def asked(self, examples: Sequence[_Example]) -> Asked:
        """The answer head about each example: 1 for the true next utterance."""
        return Asked(
            "next_utterance",
            ANSWER,
            [self._encode(example) for example in examples],
            [int(example.other is None) for example in examples],
        )

    def _encode(self, example: _Example) -> Encoded:
        return self._windows.encode(example.window, example.other or example.window, self._layout)

    def _wrong(self, number: int, rng: np.random.Generator) -> Window:
        window = self._windows.windows[number]
        if window.place > 1 and rng.random() < self.config.wrong_from_same_dialogue:
            earlier = Window(window.row, int(rng.integers(window.place - 1)))
            if not np.array_equal(self._windows.target(earlier), self._windows.target(window)):
                return earlier
        similar = self._similar.rows(number) if self._similar is not None else []
        if len(similar):
            return self._windows.windows[int(rng.choice(similar))]
        return self._windows.elsewhere(number, rng)


class _SimilarTexts:
    """BM25 among the windows' true next utterances, word pieces being the words."""

    def __init__(self, texts: Sequence[Ids], dialogues: Sequence[str]) -> None:
        self._counts, weights = bm25_matrices([text.tolist() for text in texts])
        self._weights = weights.T.tocsr()
        self._texts = np.unique([text.tobytes() for text in texts], return_inverse=True)[1]
        self._dialogues = np.unique(dialogues, return_inverse=True)[1]

    def rows(self, query: int) -> npt.NDArray[np.int64]:
        """The nearest texts to a window's, from other dialogues and not the same words; may be fewer than asked."""
        scores = (self._counts[query : query + 1] @ self._weights).tocsr()
        other = (self._dialogues[scores.indices] != self._dialogues[query]) & (
            self._texts[scores.indices] != self._texts[query]
        )
        found, values = scores.indices[other], scores.data[other]
        best = np.lexsort((found, -values))[: 4 * _NUM_SIMILAR]
        _, first = np.unique(self._texts[found[best]], return_index=True)  # the same words once
        return found[best][np.sort(first)][:_NUM_SIMILAR].astype(np.int64)
