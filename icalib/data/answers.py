"""Which utterances of a corpus are answers of its pools, by the `text_key`s of the utterance before it and of itself.

Ids of dialogues can't tell: ready-made pools have none that several share, and logs may repeat dialogues of the pools.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from icalib.data.encoding import Keys, Lists, TokenStore

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
