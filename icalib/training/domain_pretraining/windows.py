"""Windows of dialogues: an utterance and the utterances before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.core.errors import SettingError
from icalib.data.encoding import Encoded, Ids, Keys, Layout, Lists, TokenStore

MAX_DRAWS = 100

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_Key = tuple[str, int, int]  # a dialogue, and the numbers of two consecutive texts


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
        self._store, self._rows, self._width = store, rows, width
        self._keys, self._are_candidates = store.keys("context_keys"), are_candidates(store)
        self._first, self._lengths = self._keys.offsets, store.lengths("context")
        self._tokens_before = self._lengths.sums()
        self._texts = self._number_texts()
        self._answers: dict[str, set[int]] = {}
        candidates, self._dialogues = store.keys("candidate_keys"), store.column("dialog_id")
        for row in rows:
            self._answers.setdefault(self._dialogues[row], set()).update(candidates.at(row).tolist())
        self.windows, self.dialogues = self._find()
        if len({self._text(window) for window in self.windows}) < 2:
            raise SettingError(
                "domain pre-training found no dialogue windows: the contexts have one utterance each, or all the same. "
                "Expected contexts with two or more different utterances. "
                "Disable it with --set domain_pretraining=null, or prepare the data with longer contexts."
            )

    def __len__(self) -> int:
        return len(self.windows)

    def target(self, window: Window) -> Ids:
        """Return the token ids of a window's target."""
        return self._store.utterances(window.row, window.position, window.position + 1)[0]

    def context(self, window: Window) -> list[Ids]:
        """Return the token ids of the utterances before the target."""
        return self._store.utterances(window.row, self._start(window), window.position)

    def _start(self, window: Window) -> int:
        return max(0, window.position - self._width) if self._width is not None else 0

    def encode(self, window: Window, target: Window, layout: Layout) -> Encoded:
        """Return the input ids of a window's context followed by a target, its own or another."""
        ids = self.target(target)[: layout.budget.max_candidate_tokens]
        return layout.pair(layout.context_ids(self.context(window), None), ids)

    def length(self, window: Window, target: Window, layout: Layout) -> int:
        """Return the number of ids that `encode` returns."""
        tokens = min(int(self._lengths.values[self._flat(target)]), layout.budget.max_candidate_tokens)
        before, turns = self._tokens_before, self._context_size(window)
        context = int(before[self._flat(window)] - before[self._flat(window) - turns])
        return layout.pair_length(layout.context_length(context, turns), tokens)

    def sample(self, max_windows: int | None, rng: np.random.Generator) -> list[int]:
        """Draw the indices of at most `max_windows` windows (None: of all) without replacement."""
        size = min(max_windows or len(self), len(self))
        return rng.choice(len(self), size, replace=False).tolist()

    def sample_other_dialogue(self, index: int, rng: np.random.Generator) -> Window:
        """Draw a window of another dialogue whose target differs from that of window `index`."""
        target = self._text(self.windows[index])
        draws = 0
        while True:
            draws += 1
            other = int(rng.integers(len(self)))
            # If all other dialogues have the same target, the window's own dialogue is allowed too.
            allowed = self.dialogues[other] != self.dialogues[index] or draws > MAX_DRAWS
            if allowed and self._text(self.windows[other]) != target:
                return self.windows[other]

    def can_replace_target(self, index: int, other: Window) -> bool:
        """Return whether a target is neither that of window `index` nor a candidate of a pool of its dialogue."""
        key = int(self._keys.values[self._flat(other)])
        differs = self._text(other) != self._text(self.windows[index])
        return differs and key not in self._answers[self.dialogues[index]]

    def utterances(self) -> dict[str, list[Window]]:
        """Return the distinct utterances of each dialogue's contexts, without the candidates of its pools."""
        found: dict[str, dict[int, Window]] = {}
        for window in self._places():
            if self._is_usable(window):
                found.setdefault(self._dialogues[window.row], {}).setdefault(self._text(window), window)
        return {dialogue: list(windows.values()) for dialogue, windows in found.items()}

    def _find(self) -> tuple[list[Window], list[str]]:
        found: dict[_Key, Window] = {}
        for window in self._places():
            if window.position == 0 or not self._is_usable(window):
                continue
            before = int(self._texts[self._flat(window) - 1])
            key = (self._dialogues[window.row], before, self._text(window))
            if not self._is_known(found.get(key), window):
                found[key] = window
        if self._width is not None:
            found = self._longest_contexts(found)
        return list(found.values()), [dialogue for dialogue, _, _ in found]

    def _places(self) -> Iterator[Window]:
        for row in self._rows:
            for position in range(self._first[row + 1] - self._first[row]):
                yield Window(int(row), position)

    def _number_texts(self) -> Ints:
        """Number the utterances of all contexts by their ids: texts with different keys can have the same ids."""
        numbers: dict[bytes, int] = {}
        texts = np.full(len(self._keys.values), -1)
        for row in self._rows:
            start, stop = self._first[row], self._first[row + 1]
            ids = self._store.utterances(row, 0, stop - start)
            texts[start:stop] = [numbers.setdefault(one.tobytes(), len(numbers)) for one in ids]
        return texts

    def _flat(self, window: Window) -> int:
        return int(self._first[window.row]) + window.position

    def _text(self, window: Window) -> int:
        return int(self._texts[self._flat(window)])

    def _is_usable(self, window: Window) -> bool:
        """Return whether an utterance has tokens and is no candidate."""
        flat = self._flat(window)
        return bool(self._lengths.values[flat]) and not self._are_candidates[flat]

    def _is_known(self, earlier: Window | None, window: Window) -> bool:
        """Return whether an equal window is known, with a context that is at least as long if `width` is set."""
        return earlier is not None and (
            self._width is None or self._context_size(earlier) >= self._context_size(window)
        )

    def _longest_contexts(self, found: dict[_Key, Window]) -> dict[_Key, Window]:
        longest: dict[str, int] = {}
        for (dialogue, _, _), window in found.items():
            longest[dialogue] = max(self._context_size(window), longest.get(dialogue, 0))
        return {key: window for key, window in found.items() if self._context_size(window) == longest[key[0]]}

    def _context_size(self, window: Window) -> int:
        return window.position - self._start(window)


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
