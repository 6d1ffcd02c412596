"""Windows of dialogues: an utterance and the utterances before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.core.errors import SettingError
from icalib.data.encoding import Encoded, Ids, Keys, Layout, Lists, TokenStore

MAX_DRAWS = 100


class Window(NamedTuple):
    """A target utterance, at `position` of the context of the pool in `row`, and the utterances before it."""

    row: int
    position: int


class Windows:
    """Distinct windows of the contexts of pools in `rows`, labelled or not.

    No target is a candidate of a pool (see `are_candidates`), so that the same pre-trained model can be used for every
    labelled fraction. A context has `width` utterances (shorter dialogues give one window with all they have); None:
    all before the target. A SettingError says that there are no two windows with different targets.
    """

    def __init__(self, store: TokenStore, rows: Sequence[int], width: int | None = None) -> None:
        self._store, self._width = store, width
        self._keys, self._are_candidates = store.keys("context_keys"), are_candidates(store)
        self._answers: dict[str, set[int]] = {}
        candidates, dialogues = store.keys("candidate_keys"), store.column("dialog_id")
        for row in rows:
            keys = candidates.values[candidates.offsets[row] : candidates.offsets[row + 1]]
            self._answers.setdefault(dialogues[row], set()).update(keys.tolist())
        self.windows, self.dialogues = self._find(rows)
        if all(np.array_equal(self.target(window), self.target(self.windows[0])) for window in self.windows):
            raise SettingError(
                "domain pre-training found no dialogue windows: the contexts have one utterance each, or all the same. "
                "Expected contexts with two or more different utterances. "
                "Disable it with --set domain_pretraining=null, or prepare the data with longer contexts."
            )

    def __len__(self) -> int:
        return len(self.windows)

    def target(self, window: Window) -> Ids:
        """Return the token ids of a window's target."""
        return self._store.pool(window.row).context[window.position]

    def context(self, window: Window) -> list[Ids]:
        """Return the token ids of the utterances before the target."""
        return self._store.pool(window.row).context[self._start(window) : window.position]

    def _start(self, window: Window) -> int:
        return max(0, window.position - self._width) if self._width is not None else 0

    def encode(self, window: Window, target: Window, layout: Layout) -> Encoded:
        """Return the input ids of a window's context followed by a target, its own or another."""
        ids = self.target(target)[: layout.budget.max_candidate_tokens]
        return layout.pair(layout.context_ids(self.context(window), None), ids)

    def length(self, window: Window, target: Window, layout: Layout) -> int:
        """Return the number of ids that `encode` returns."""
        ids = self.target(target)[: layout.budget.max_candidate_tokens]
        context = self.context(window)
        return layout.pair_length(layout.context_length(sum(map(len, context)), len(context)), len(ids))

    def sample(self, max_windows: int | None, rng: np.random.Generator) -> list[int]:
        """Draw the indices of at most `max_windows` windows (None: of all) without replacement."""
        size = min(max_windows or len(self), len(self))
        return rng.choice(len(self), size, replace=False).tolist()

    def sample_other_dialogue(self, index: int, rng: np.random.Generator) -> Window:
        """Draw a window of another dialogue whose target differs from that of window `index`."""
        target = self.target(self.windows[index])
        draws = 0
        while True:
            draws += 1
            other = int(rng.integers(len(self)))
            # If all other dialogues have the same target, the window's own dialogue is allowed too.
            allowed = self.dialogues[other] != self.dialogues[index] or draws > MAX_DRAWS
            if allowed and not np.array_equal(self.target(self.windows[other]), target):
                return self.windows[other]

    def can_replace_target(self, index: int, other: Window) -> bool:
        """Return whether a target is neither that of window `index` nor a candidate of a pool of its dialogue."""
        words, target = self.target(other).tobytes(), self.target(self.windows[index]).tobytes()
        key = int(self._keys.values[self._keys.offsets[other.row] + other.position])
        return words != target and key not in self._answers[self.dialogues[index]]

    def utterances(self, rows: Sequence[int]) -> dict[str, list[Window]]:
        """Return the distinct utterances of each dialogue's contexts, without the candidates of its pools."""
        found: dict[str, dict[bytes, Window]] = {}
        for pool in self._store.pools(rows):
            for position, ids in enumerate(pool.context):
                if len(ids) and not self._is_candidate(pool.row, position):
                    found.setdefault(pool.dialog_id, {}).setdefault(ids.tobytes(), Window(pool.row, position))
        return {dialogue: list(windows.values()) for dialogue, windows in found.items()}

    def _find(self, rows: Sequence[int]) -> tuple[list[Window], list[str]]:
        found: dict[tuple[str, bytes, bytes], Window] = {}
        for pool in self._store.pools(rows):
            for position in range(1, len(pool.context)):
                target, before = pool.context[position].tobytes(), pool.context[position - 1].tobytes()
                key, window = (pool.dialog_id, before, target), Window(pool.row, position)
                usable = len(pool.context[position]) and not self._is_candidate(pool.row, position)
                if usable and not self._is_known(found.get(key), window):
                    found[key] = window
        if self._width is not None:
            found = self._longest_contexts(found)
        return list(found.values()), [dialogue for dialogue, _, _ in found]

    def _is_candidate(self, row: int, position: int) -> bool:
        return bool(self._are_candidates[self._keys.offsets[row] + position])

    def _is_known(self, earlier: Window | None, window: Window) -> bool:
        """Return whether an equal window is known, with a context that is at least as long if `width` is set."""
        return earlier is not None and (
            self._width is None or self._context_size(earlier) >= self._context_size(window)
        )

    def _longest_contexts(
        self, found: dict[tuple[str, bytes, bytes], Window]
    ) -> dict[tuple[str, bytes, bytes], Window]:
        longest: dict[str, int] = {}
        for (dialogue, _, _), window in found.items():
            longest[dialogue] = max(self._context_size(window), longest.get(dialogue, 0))
        return {key: window for key, window in found.items() if self._context_size(window) == longest[key[0]]}

    def _context_size(self, window: Window) -> int:
        return window.position - self._start(window)


Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MIX = np.uint64(0x9E3779B97F4A7C15)


def pair_keys(before: Keys, after: Keys) -> Keys:
    """Return a 64-bit key of each pair of consecutive texts, from the texts' keys."""
    return before * _MIX + after  # uint64 wraps


def following(lists: Lists) -> tuple[Ints, Ints, Ints]:
    """Return the list, the position in it and the flat index of every element that has one before it."""
    rows = lists.rows()
    flat = np.arange(len(rows))
    position = flat - lists.offsets[rows]
    return rows[position > 0], position[position > 0], flat[position > 0]


class PoolAnswers:
    """Candidates of pools as next utterances, right and wrong ones alike, so that nothing left out shows a label."""

    def __init__(self, stores: Sequence[TokenStore]) -> None:
        self._keys = np.unique(np.concatenate([_answers(store) for store in stores]))

    def among(self, before: Keys, after: Keys) -> Mask:
        """Return whether each pair of consecutive utterances is a pool's last utterance and one of its candidates."""
        return np.isin(pair_keys(before, after), self._keys)


def are_candidates(store: TokenStore, held_out: Sequence[TokenStore] = ()) -> Mask:
    """Return for each utterance of a split's contexts, in the order of their keys, whether it is a pool's candidate: by
    the utterance before it, in all splits given, and by its text in pools of `store` that have the dialogue's id.
    """
    contexts, candidates = store.keys("context_keys"), store.keys("candidate_keys")
    dialogues = np.unique(store.column("dialog_id"), return_inverse=True)[1].astype(np.uint64)
    own = pair_keys(dialogues[candidates.rows()], candidates.values)
    found = np.isin(pair_keys(dialogues[contexts.rows()], contexts.values), own)
    _, _, flat = following(contexts)
    found[flat] |= PoolAnswers([store, *held_out]).among(contexts.values[flat - 1], contexts.values[flat])
    return found


def _answers(store: TokenStore) -> Keys:
    contexts, candidates = store.keys("context_keys"), store.keys("candidate_keys")
    last = contexts.values[contexts.offsets[1:] - 1]
    return pair_keys(last[candidates.rows()], candidates.values)
