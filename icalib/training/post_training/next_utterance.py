"""Next-utterance discrimination with the answer head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Layout, TokenStore
from icalib.models.ranker import ANSWER
from icalib.training.post_training.task import TaskBatch, WindowTask, batched
from icalib.training.post_training.windows import Window, Windows
from icalib.training.settings import EpochsRequired, TrainingSettings


class _Example(NamedTuple):
    window: Window
    other: Window | None  # the window with the wrong utterance; None for the true next one
    length: int


@final
class NextUtterance(WindowTask):
    """Binary classification of next utterances by the answer head, which also initialises the head.

    Differences from BERT_FP's task (Han et al. 2021; see `UtteranceRelevance`): there are two classes instead of three,
    and by default no wrong utterance comes from the same dialogue and no token is masked, because these help over
    BERT_FP's 25 epochs but not over a single epoch.
    """

    class Config(WindowTask.Config):
        """Settings of next-utterance discrimination."""

        training: EpochsRequired = TrainingSettings(
            epochs=1, learning_rate=5e-5, head_learning_rate=1e-3, batch_size=32, max_tokens_per_batch=4096
        )
        """Optimiser and schedule; without validation, the last weights are kept."""
        max_windows: int | None = Field(default=8000, ge=1)
        """Maximum number of windows per epoch, drawn again each epoch; None uses all."""
        wrong_from_same_dialogue: float = Field(default=0.0, ge=0, le=1)
        """Fraction of wrong utterances that come from the same dialogue; the others come from another dialogue. BERT_FP
        uses 0.5; with little training, the model then learns that anything similar to the context is wrong."""
        masked_word_weight: float = Field(default=0.0, ge=0)
        """Weight of the masked-token loss, added to the next-utterance loss; 0 masks no tokens. BERT_FP uses 1; with
        little training, masked tokens harm the next-utterance task more than they help."""

    def __init__(self, config: Config, *, store: TokenStore, rows: Sequence[int], layout: Layout) -> None:
        self.config, self._layout = config, layout
        self._windows = Windows(store, rows)

    def batches(self, epoch: int) -> list[list[_Example]]:
        """Return an epoch's batches, with as many true as wrong next utterances."""
        rng = np.random.default_rng(child_seed(self.config.seed, "windows", epoch))
        examples: list[_Example] = []
        for index in self._windows.sample(self.config.max_windows, rng):
            window = self._windows.windows[index]
            context = sum(map(len, self._windows.context(window)))
            for other in (None, self._wrong(index, rng)):
                length = context + len(self._windows.target(other or window))
                examples.append(_Example(window, other, length))
        return batched(examples, self.config.training, rng)

    @override
    def collate(self, examples: Sequence[_Example]) -> TaskBatch:
        return TaskBatch(
            "next_utterance",
            ANSWER,
            [self._encode(example) for example in examples],
            [int(example.other is None) for example in examples],
        )

    def _encode(self, example: _Example) -> Encoded:
        return self._windows.encode(example.window, example.other or example.window, self._layout)

    def _wrong(self, index: int, rng: np.random.Generator) -> Window:
        window = self._windows.windows[index]
        if window.position > 1 and rng.random() < self.config.wrong_from_same_dialogue:
            earlier = Window(window.row, int(rng.integers(window.position - 1)))
            if not np.array_equal(self._windows.target(earlier), self._windows.target(window)):
                return earlier
        return self._windows.sample_other_dialogue(index, rng)
