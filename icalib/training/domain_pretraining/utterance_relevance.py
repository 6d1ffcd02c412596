"""BERT_FP's domain pre-training: utterance relevance classification and masked-token prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.encoding import Layout, TokenStore
from icalib.training.domain_pretraining.task import TaskBatch, WindowTask
from icalib.training.domain_pretraining.windows import MAX_DRAWS, Window, Windows
from icalib.training.examples import batched
from icalib.training.settings import EpochsRequired, TrainingSettings

OTHER_DIALOGUE, SAME_DIALOGUE, NEXT = 0, 1, 2
"""The classes of a window's last utterance."""
_CLASS_PROBS = (0.5, 0.25, 0.25)
_TASK = "utterance_relevance"


class _Example(NamedTuple):
    window: Window
    target: Window
    relevance: int
    length: int


@final
class UtteranceRelevance(WindowTask):
    """Fine-grained domain pre-training of BERT_FP (Han et al. 2021, §3.2), on training dialogues, labelled or not.

    A window has three utterances and a fourth: the true next one (¼), another of the same dialogue (¼) or one of
    another dialogue (½). A linear head on [CLS] predicts which, with masked tokens: L = L_URC + L_MLM; both heads are
    dropped. Unlike the authors' code, utterances are separated by the encoder's separator, [CLS] has no pooler, the
    fourth utterance is never a candidate of a pool of its dialogue, a dialogue consists of the contexts of its pools,
    and L_MLM is the mean over windows of the mean over a window's masked tokens, for any number of workers and parts.
    """

    class Config(WindowTask.Config):
        """Settings of utterance relevance classification; the defaults are the published values for Ubuntu."""

        training: EpochsRequired = TrainingSettings(
            epochs=25,
            learning_rate=1.5e-5,
            weight_decay=0.01,
            warmup_fraction=0.01,
            schedule="plateau",
            batch_size=50,
            max_tokens_per_batch=12000,
        )
        """Optimiser and schedule; without validation, the last weights are kept. The paper uses 25 epochs and 1.5e-5
        for Ubuntu, and up to 34 epochs and 3e-5 for the other corpora. `--preset light` uses two epochs, for
        laptops."""
        masked_word_weight: float = Field(default=1.0, ge=0)
        """Weight of the masked-token loss, added to the task's loss; 0 masks no tokens."""
        context_utterances: int = Field(default=3, ge=1)
        """Number of utterances before the last one of a window. Shorter dialogues give one window, with all utterances
        that they have."""
        max_length: int = Field(default=240, ge=16)
        """Maximum number of tokens of a window, including special tokens; longer contexts are truncated at their
        start."""

        task_heads: ClassVar[Mapping[str, int]] = {_TASK: len(_CLASS_PROBS)}

    def __init__(self, config: Config, *, store: TokenStore, rows: Sequence[int], layout: Layout) -> None:
        self.config = config
        self._layout = replace(layout, max_length=min(layout.max_length, config.max_length))
        self._windows = Windows(store, rows, config.context_utterances)
        self._utterances = self._windows.utterances()
        self._dialogues = list(self._utterances)

    def batches(self, epoch: int) -> list[list[_Example]]:
        """Return an epoch's batches: each window once, with a newly drawn last utterance."""
        rng = np.random.default_rng(child_seed(self.config.seed, "windows", epoch))
        examples: list[_Example] = []
        for index in self._windows.sample(self.config.max_windows, rng):
            window = self._windows.windows[index]
            target, relevance = self._draw(index, rng)
            length = self._windows.length(window, target, self._layout)
            examples.append(_Example(window, target, relevance, length))
        return batched(examples, self.config.training, rng)

    @override
    def collate(self, examples: Sequence[_Example]) -> TaskBatch:
        return TaskBatch(
            _TASK,
            [self._windows.encode(example.window, example.target, self._layout) for example in examples],
            [example.relevance for example in examples],
        )

    def _draw(self, index: int, rng: np.random.Generator) -> tuple[Window, int]:
        window = self._windows.windows[index]
        relevance = int(rng.choice(len(_CLASS_PROBS), p=_CLASS_PROBS))
        if relevance == NEXT:
            return window, NEXT
        others = self._others(index) if relevance == SAME_DIALOGUE else []
        if others:
            return others[int(rng.integers(len(others)))], SAME_DIALOGUE
        return self._sample_other_dialogue(index, rng), OTHER_DIALOGUE

    def _others(self, index: int) -> list[Window]:
        utterances = self._utterances[self._windows.dialogues[index]]
        return [other for other in utterances if self._windows.can_replace_target(index, other)]

    def _sample_other_dialogue(self, index: int, rng: np.random.Generator) -> Window:
        for _ in range(MAX_DRAWS):
            dialogue = self._dialogues[int(rng.integers(len(self._dialogues)))]
            other = self._utterances[dialogue][int(rng.integers(len(self._utterances[dialogue])))]
            if dialogue != self._windows.dialogues[index] and self._windows.can_replace_target(index, other):
                return other
        return self._windows.sample_other_dialogue(index, rng)  # reached with few dialogues, or few distinct utterances
