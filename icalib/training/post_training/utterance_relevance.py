"""BERT_FP's post-training: utterance relevance classification and masked words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple, final

import numpy as np
from pydantic import Field

from icalib.core.seeding import child_seed
from icalib.data.encoding import Layout, TokenStore
from icalib.training.post_training.task import AbstractPostTraining, Asked, batched
from icalib.training.post_training.windows import MAX_DRAWS, Window, Windows
from icalib.training.settings import TrainingSettings

OTHER_DIALOGUE, SAME_DIALOGUE, NEXT = 0, 1, 2
"""The classes of a window's last utterance."""
_SHARES = (0.5, 0.25, 0.25)
_TASK = "utterance_relevance"


class _Example(NamedTuple):
    window: Window
    target: Window
    relevance: int
    length: int


@final
class UtteranceRelevance(AbstractPostTraining):
    """Fine-grained post-training of BERT_FP (Han et al. 2021, §3.2), on training dialogues, labelled or not.

    A window is three utterances and a fourth, which is the true next one (¼), another one of the same dialogue (¼) or
    one of another dialogue (½). A linear head on [CLS] says which of the three, while 15 % of the words are hidden:
    L = L_URC + L_MLM. The head and the masked-word head are dropped afterwards; the answer head starts anew.

    Our reading where it isn't the authors': utterances are separated by the encoder's own separator
    (`encoder.turn_separators`), not by a new token; the state of [CLS] is read without BERT's pooler; the fourth
    utterance is never a candidate of a pool of its window's dialogue, so that no answer of an unlabelled pool is
    shown; and a dialogue is what the contexts of its pools hold of it.
    """

    class Config(AbstractPostTraining.Config):
        """Settings of utterance relevance; the defaults are the published ones for Ubuntu."""

        training: TrainingSettings = TrainingSettings(
            epochs=25,
            learning_rate=1.5e-5,
            weight_decay=0.01,
            warmup_fraction=0.01,
            schedule="plateau",
            batch_size=50,
            max_tokens_per_batch=12000,
        )
        """Optimiser and schedule; there is no validation, the last weights are kept. Published are 25 epochs and 1.5e-5
        for Ubuntu, up to 34 epochs and 3e-5 for the others; two epochs are a start on a laptop (`--preset light`)."""
        masked_word_weight: float = Field(default=1.0, ge=0)
        """Weight of the masked-word loss beside the other; 0 leaves words unmasked."""
        context_utterances: int = Field(default=3, ge=1)
        """Utterances before the last one of a window; shorter dialogues make one window, of all they have."""
        max_length: int = Field(default=240, ge=16)
        """Tokens of a window, special ones counted; a longer one loses the start of its context."""

        questions: ClassVar[Mapping[str, int]] = {_TASK: len(_SHARES)}

    def __init__(self, config: Config, *, store: TokenStore, rows: Sequence[int], layout: Layout) -> None:
        self.config = config
        self._layout = replace(layout, max_length=min(layout.max_length, config.max_length))
        self._windows = Windows(store, rows, config.context_utterances)
        self._spoken = self._windows.spoken(rows)
        self._dialogues = list(self._spoken)

    def batches(self, epoch: int) -> list[list[_Example]]:
        """An epoch's batches: each window once, its last utterance drawn anew."""
        rng = np.random.default_rng(child_seed(self.config.seed, "windows", epoch))
        examples: list[_Example] = []
        for number in self._windows.sample(self.config.max_windows, rng):
            window = self._windows.windows[number]
            target, relevance = self._draw(number, rng)
            length = self._windows.length(window, target, self._layout)
            examples.append(_Example(window, target, relevance, length))
        return batched(examples, self.config.training, rng)

    def asked(self, examples: Sequence[_Example]) -> Asked:
        """The head about the last utterance of each window."""
        return Asked(
            _TASK,
            _TASK,
            [self._windows.encode(example.window, example.target, self._layout) for example in examples],
            [example.relevance for example in examples],
        )

    def _draw(self, number: int, rng: np.random.Generator) -> tuple[Window, int]:
        """The last utterance of a window, and its class."""
        window = self._windows.windows[number]
        relevance = int(rng.choice(len(_SHARES), p=_SHARES))
        if relevance == NEXT:
            return window, NEXT
        others = self._others(number) if relevance == SAME_DIALOGUE else []
        if others:
            return others[int(rng.integers(len(others)))], SAME_DIALOGUE
        return self._elsewhere(number, rng), OTHER_DIALOGUE

    def _others(self, number: int) -> list[Window]:
        """What else is said in the window's dialogue; the context's own utterances are among it."""
        spoken = self._spoken[self._windows.dialogues[number]]
        return [other for other in spoken if self._windows.may_stand_in(number, other)]

    def _elsewhere(self, number: int, rng: np.random.Generator) -> Window:
        """Any utterance of any other dialogue."""
        for _ in range(MAX_DRAWS):
            dialogue = self._dialogues[int(rng.integers(len(self._dialogues)))]
            other = self._spoken[dialogue][int(rng.integers(len(self._spoken[dialogue])))]
            if dialogue != self._windows.dialogues[number] and self._windows.may_stand_in(number, other):
                return other
        return self._windows.elsewhere(number, rng)  # few dialogues that say the same
