"""GRN's post-training: next-utterance prediction and utterance-order prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, final

import numpy as np

from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, Ids, Layout, TokenStore
from icalib.training.post_training.task import AbstractPostTraining, Asked, batched
from icalib.training.post_training.windows import Window, Windows
from icalib.training.settings import TrainingSettings

NEXT_UTTERANCE, UTTERANCE_ORDER = "next_utterance", "utterance_order"


class _Example(NamedTuple):
    """A question about a window: `target` is the utterance after its context, `order` that of all its utterances."""

    task: str
    window: Window
    target: Window
    order: tuple[int, ...]
    is_original: bool
    length: int


@final
class UtteranceOrder(AbstractPostTraining):
    """GRN's post-training (Liu Y. et al. 2021) on training dialogues, labelled or not: NUP and UOP, losses added.

    NUP asks whether an utterance is the next one: the true one or one of another dialogue, 1:1. UOP asks whether the
    utterances of a window stand in their order: the original one or a permutation that reads otherwise, drawn
    uniformly, 1:1. Each has a linear head of two classes on [CLS]; both are dropped afterwards.

    Of the paper only the abstract was at hand; ours are: a window is a context of a pool and what follows in it, the
    order is of the next utterance, too, and a batch asks one question, with as many examples of each in an epoch.
    """

    class Config(AbstractPostTraining.Config):
        """Settings of next-utterance and utterance-order prediction; the optimiser's are our choice."""

        training: TrainingSettings = TrainingSettings(
            epochs=3, learning_rate=2e-5, batch_size=32, max_tokens_per_batch=8192
        )
        """Optimiser and schedule; there is no validation, the last weights are kept."""

        questions: ClassVar[Mapping[str, int]] = {NEXT_UTTERANCE: 2, UTTERANCE_ORDER: 2}

    def __init__(self, config: Config, *, store: TokenStore, rows: Sequence[int], layout: Layout) -> None:
        self.config, self._layout = config, layout
        self._windows = Windows(store, rows)

    def batches(self, epoch: int) -> list[list[_Example]]:
        """An epoch's batches: of each window a true and a wrong next utterance, and a right and a wrong order."""
        rng = np.random.default_rng(child_seed(self.config.seed, "windows", epoch))
        chosen = self._windows.sample(self.config.max_windows, rng)
        next_ones = [example for number in chosen for example in self._next(number, rng)]
        orders = [example for number in chosen for example in self._orders(number, rng)]
        batches = [batch for task in (next_ones, orders) for batch in batched(task, self.config.training, rng)]
        return [batches[int(place)] for place in rng.permutation(len(batches))]

    def asked(self, examples: Sequence[_Example]) -> Asked:
        """The task's head about each example: 1 for the original."""
        task = examples[0].task
        return Asked(
            task,
            task,
            [self._encode(example) for example in examples],
            [int(example.is_original) for example in examples],
        )

    def _next(self, number: int, rng: np.random.Generator) -> list[_Example]:
        window = self._windows.windows[number]
        order = tuple(range(window.place + 1))
        return [
            _Example(
                NEXT_UTTERANCE, window, target, order, target is window,
                self._windows.length(window, target, self._layout),
            )
            for target in (window, self._windows.elsewhere(number, rng))
        ]  # fmt: skip

    def _orders(self, number: int, rng: np.random.Generator) -> list[_Example]:
        """Both orders of a window's utterances; none if all orders read alike."""
        window = self._windows.windows[number]
        permuted = permutation(self._utterances(window), rng)
        if permuted is None:
            return []
        length = self._windows.length(window, window, self._layout)
        original = tuple(range(window.place + 1))
        return [
            _Example(UTTERANCE_ORDER, window, window, order, order is original, length)
            for order in (original, permuted)
        ]

    def _utterances(self, window: Window) -> list[Ids]:
        return [*self._windows.context(window), self._windows.target(window)]

    def _encode(self, example: _Example) -> Encoded:
        utterances = [*self._windows.context(example.window), self._windows.target(example.target)]
        *context, last = (utterances[place] for place in example.order)
        return self._layout.pair(
            self._layout.context_ids(context, None), last[: self._layout.budget.max_candidate_tokens]
        )


def permutation(utterances: Sequence[Ids], rng: np.random.Generator) -> tuple[int, ...] | None:
    """An order that reads otherwise than the given one, all of them equally likely; None if there is none."""
    texts = [ids.tobytes() for ids in utterances]
    if len(set(texts)) < 2:
        return None
    while True:
        order = tuple(rng.permutation(len(texts)).tolist())
        if [texts[place] for place in order] != texts:
            return order
