"""Which utterances of a corpus are answers of its pools, told by where they stand in a dialogue, not by ids.

An answer is recognised by the `text_key`s of the utterance before it and of itself. Ids of dialogues can't do that:
sources of ready-made pools have none that several pools share, and logs may repeat dialogues of the pools.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from icalib.data.encoding import Keys, TokenStore

_MIX = np.uint64(0x9E3779B97F4A7C15)


def pair_keys(before: Keys, after: Keys) -> Keys:
    """Return a 64-bit key of each pair of consecutive texts, from the texts' keys."""
    return before * _MIX + after  # uint64 wraps


class PoolAnswers:
    """The candidates of pools, right or wrong, as next utterances after their contexts.

    Right and wrong candidates count alike, so that what is left out says nothing about unknown labels.

    Args:
        stores: tokens of splits.
    """

    def __init__(self, stores: Sequence[TokenStore]) -> None:
        self._keys = np.unique(np.concatenate([_answers(store) for store in stores]))

    def among(self, before: Keys, after: Keys) -> npt.NDArray[np.bool_]:
        """Return whether each pair of consecutive utterances is a pool's last utterance and one of its candidates."""
        return np.isin(pair_keys(before, after), self._keys)


def _answers(store: TokenStore) -> Keys:
    contexts, candidates = store.keys("context_keys"), store.keys("candidate_keys")
    last = contexts.values[contexts.offsets[1:] - 1]
    return pair_keys(np.repeat(last, np.diff(candidates.offsets)), candidates.values)
