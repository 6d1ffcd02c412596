"""Windows of dialogues: an utterance and those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from icalib.core.errors import SettingError
from icalib.data.encoding import Encoded, Ids, Layout, TokenStore

MAX_DRAWS = 100


class Window(NamedTuple):
    """Utterance `place` of the context in `row` is the target, those before it are the context."""

    row: int
    place: int


class Windows:
    """Distinct windows of contexts, none of whose targets is a candidate of a pool of the same dialogue.

    So no answer of an unlabelled pool is ever a target, and one post-trained model serves every labelled fraction.

    Args:
        rows: pools whose contexts are read, labelled or not.
        width: utterances of a window's context. Dialogues without so many give one window, of all there are. None
            takes all utterances before the target, however many.

    Raises:
        SettingError: the contexts hold no two windows with different targets.
    """

    def __init__(self, store: TokenStore, rows: Sequence[int], width: int | None = None) -> None:
        self._store, self._width = store, width
        self._answers: dict[str, set[bytes]] = {}
        for pool in store.pools(rows):
            self._answers.setdefault(pool.dialog_id, set()).update(ids.tobytes() for ids in pool.candidates)
        self.windows, self.dialogues = self._find(rows)
        if all(np.array_equal(self.target(window), self.target(self.windows[0])) for window in self.windows):
            raise SettingError(
                "post-training finds no dialogue windows: the contexts have one utterance each, or all the same. "
                "Switch it off with --set post_training=null, or prepare with longer contexts."
            )

    def __len__(self) -> int:
        return len(self.windows)

    def target(self, window: Window) -> Ids:
        """The target's ids."""
        return self._store.pool(window.row).context[window.place]

    def context(self, window: Window) -> list[Ids]:
        """The ids of the utterances before the target."""
        return self._store.pool(window.row).context[self._start(window) : window.place]

    def _start(self, window: Window) -> int:
        return max(0, window.place - self._width) if self._width is not None else 0

    def encode(self, window: Window, target: Window, layout: Layout) -> Encoded:
        """A window's context with some target after it."""
        ids = self.target(target)[: layout.budget.max_candidate_tokens]
        return layout.pair(layout.context_ids(self.context(window), None), ids)

    def length(self, window: Window, target: Window, layout: Layout) -> int:
        """How many ids `encode` gives."""
        ids = self.target(target)[: layout.budget.max_candidate_tokens]
        return layout.pair_length(self.context(window), None, ids)

    def sample(self, most: int | None, rng: np.random.Generator) -> list[int]:
        """Numbers of at most so many windows in random order, each once."""
        size = min(most or len(self), len(self))
        return rng.choice(len(self), size, replace=False).tolist()

    def elsewhere(self, number: int, rng: np.random.Generator) -> Window:
        """A target from another dialogue than window `number`'s, with other words."""
        target = self.target(self.windows[number])
        draws = 0
        while True:
            draws += 1
            other = int(rng.integers(len(self)))
            # Where every other dialogue says the same, this one's other utterances have to do.
            allowed = self.dialogues[other] != self.dialogues[number] or draws > MAX_DRAWS
            if allowed and not np.array_equal(self.target(self.windows[other]), target):
                return self.windows[other]

    def may_stand_in(self, number: int, other: Window) -> bool:
        """Whether an utterance is neither window `number`'s target nor a candidate of a pool of its dialogue."""
        words, target = self.target(other).tobytes(), self.target(self.windows[number]).tobytes()
        return words != target and words not in self._answers[self.dialogues[number]]

    def spoken(self, rows: Sequence[int]) -> dict[str, list[Window]]:
        """The distinct utterances of each dialogue's contexts that are no candidates of its pools."""
        spoken: dict[str, dict[bytes, Window]] = {}
        for pool in self._store.pools(rows):
            answers = self._answers[pool.dialog_id]
            for place, ids in enumerate(pool.context):
                if len(ids) and ids.tobytes() not in answers:
                    spoken.setdefault(pool.dialog_id, {}).setdefault(ids.tobytes(), Window(pool.row, place))
        return {dialogue: list(places.values()) for dialogue, places in spoken.items()}

    def _find(self, rows: Sequence[int]) -> tuple[list[Window], list[str]]:
        """The windows and their dialogues."""
        found: dict[tuple[str, bytes, bytes], Window] = {}
        for pool in self._store.pools(rows):
            answers = self._answers[pool.dialog_id]
            for place in range(1, len(pool.context)):
                target, before = pool.context[place].tobytes(), pool.context[place - 1].tobytes()
                key, window = (pool.dialog_id, before, target), Window(pool.row, place)
                if len(pool.context[place]) and target not in answers and not self._is_known(found.get(key), window):
                    found[key] = window
        if self._width is not None:
            found = self._deepest(found)
        return list(found.values()), [dialogue for dialogue, _, _ in found]

    def _is_known(self, earlier: Window | None, window: Window) -> bool:
        """Whether there is the same window, with as long a context if its length matters."""
        return earlier is not None and (self._width is None or self._depth(earlier) >= self._depth(window))

    def _deepest(self, found: dict[tuple[str, bytes, bytes], Window]) -> dict[tuple[str, bytes, bytes], Window]:
        """The windows with the longest contexts of their dialogue, which are `width` where it has so many."""
        deepest: dict[str, int] = {}
        for (dialogue, _, _), window in found.items():
            deepest[dialogue] = max(self._depth(window), deepest.get(dialogue, 0))
        return {key: window for key, window in found.items() if self._depth(window) == deepest[key[0]]}

    def _depth(self, window: Window) -> int:
        """How many utterances its context has."""
        return window.place - self._start(window)
