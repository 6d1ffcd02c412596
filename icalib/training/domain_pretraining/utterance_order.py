"""GRN's domain pre-training: next-utterance prediction and utterance-order prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, final

import numpy as np
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Ids, Layout, TokenStore
from icalib.training.domain_pretraining.task import TaskBatch, WindowTask
from icalib.training.domain_pretraining.windows import Window, Windows
from icalib.training.examples import batched
from icalib.training.settings import EpochsRequired, TrainingSettings

NEXT_UTTERANCE, UTTERANCE_ORDER = "next_utterance", "utterance_order"


class _Example(NamedTuple):
    """A window to classify: `target` follows its context, and `order` is the order of all its utterances."""

    task: str
    window: Window
    target: Window
    order: tuple[int, ...]
    is_original: bool
    length: int


@final
class UtteranceOrder(WindowTask):
    """GRN's domain pre-training (Liu Y. et al. 2021) on training dialogues, labelled or not: the sum of two losses.

    NUP classifies whether an utterance is the next one: the true one or one of another dialogue, 1:1. UOP classifies
    whether a window's utterances are in order: the original or a permutation with a different text, 1:1. Each has a
    linear head on [CLS], dropped afterwards. Only the paper's abstract was available: windows from the contexts of
    pools, the next utterance as part of the order, and batches of one task are our choice.
    """

    class Config(WindowTask.Config):
        """Settings of next-utterance and utterance-order prediction; the optimiser settings are our choice."""

        training: EpochsRequired = TrainingSettings(
            epochs=3, learning_rate=2e-5, batch_size=32, max_tokens_per_batch=8192
        )
        """Optimiser and schedule; without validation, the last weights are kept."""

        task_heads: ClassVar[Mapping[str, int]] = {NEXT_UTTERANCE: 2, UTTERANCE_ORDER: 2}

    def __init__(self, config: Config, *, store: TokenStore, rows: Sequence[int], layout: Layout) -> None:
        self.config, self._layout = config, layout
        self._windows = Windows(store, rows)

    def batches(self, epoch: int) -> list[list[_Example]]:
        """Return an epoch's batches, with a true and a wrong next utterance and order for each window."""
        rng = np.random.default_rng(child_seed(self.config.seed, "windows", epoch))
        chosen = self._windows.sample(self.config.max_windows, rng)
        next_utterances = [example for index in chosen for example in self._next(index, rng)]
        orders = [example for index in chosen for example in self._orders(index, rng)]
        batches = [batch for task in (next_utterances, orders) for batch in batched(task, self.config.training, rng)]
        return [batches[int(index)] for index in rng.permutation(len(batches))]

    @override
    def collate(self, examples: Sequence[_Example]) -> TaskBatch:
        return TaskBatch(
            examples[0].task,
            [self._encode(example) for example in examples],
            [int(example.is_original) for example in examples],
        )

    def _next(self, index: int, rng: np.random.Generator) -> list[_Example]:
        window = self._windows.windows[index]
        order = tuple(range(window.position + 1))
        return [
            _Example(
                NEXT_UTTERANCE, window, target, order, target is window,
                self._windows.length(window, target, self._layout),
            )
            for target in (window, self._windows.sample_other_dialogue(index, rng))
        ]  # fmt: skip

    def _orders(self, index: int, rng: np.random.Generator) -> list[_Example]:
        """Return examples with the original and a permuted order; none if all utterances are the same."""
        window = self._windows.windows[index]
        permuted = permutation(self._utterances(window), rng)
        if permuted is None:
            return []
        length = self._windows.length(window, window, self._layout)
        original = tuple(range(window.position + 1))
        return [
            _Example(UTTERANCE_ORDER, window, window, order, order is original, length)
            for order in (original, permuted)
        ]

    def _utterances(self, window: Window) -> list[Ids]:
        return [*self._windows.context(window), self._windows.target(window)]

    def _encode(self, example: _Example) -> Encoded:
        utterances = [*self._windows.context(example.window), self._windows.target(example.target)]
        *context, last = (utterances[index] for index in example.order)
        return self._layout.pair(
            self._layout.context_ids(context, None), last[: self._layout.budget.max_candidate_tokens]
        )


def permutation(utterances: Sequence[Ids], rng: np.random.Generator) -> tuple[int, ...] | None:
    """Draw an order whose texts differ from the given order, uniformly; None if all utterances are the same."""
    texts = [ids.tobytes() for ids in utterances]
    if len(set(texts)) < 2:
        return None
    while True:
        order = tuple(rng.permutation(len(texts)).tolist())
        if [texts[index] for index in order] != texts:
            return order
