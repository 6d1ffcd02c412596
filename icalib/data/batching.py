"""Batches of nearly equal length under a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Batch = npt.NDArray[np.signedinteger[Any]]

_POOL_OF_BATCHES = 32  # batches whose examples are sorted by length together; more: less padding, less mixing


def ordered_batches(lengths: Sequence[int] | npt.NDArray[np.int64], batch_size: int, max_tokens: int) -> list[Batch]:
    """Return indices by rising length in batches of at most `batch_size` examples and `max_tokens` padded tokens; a
    longer example is a batch of its own.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    return [order[start:end] for start, end in _cuts(lengths[order], batch_size, max_tokens)]


def shuffled_batches(
    lengths: Sequence[int] | npt.NDArray[np.integer[Any]],
    batch_size: int,
    max_tokens: int,
    rng: np.random.Generator,
    *,
    classes: Sequence[int] | npt.NDArray[np.int64] | None = None,
) -> list[Batch]:
    """Return the batches of one epoch, cut as in `ordered_batches`: shuffled, bucketed by length, in shuffled order.

    With each example's class in `classes`, every batch has about the same proportions of them, the highest first.
    """
    lengths = np.asarray(lengths)
    classes = np.zeros(len(lengths), np.int64) if classes is None else np.asarray(classes)
    order = rng.permutation(len(lengths))
    order = order[_merged(np.arange(len(order)), classes[order])]
    batches: list[Batch] = []
    for start in range(0, len(order), batch_size * _POOL_OF_BATCHES):
        bucket = order[start : start + batch_size * _POOL_OF_BATCHES]
        bucket = bucket[_merged(lengths[bucket], classes[bucket])]
        for first, end in _cuts(lengths[bucket], batch_size, max_tokens):
            batch = bucket[first:end]
            batches.append(batch[np.argsort(-classes[batch], kind="stable")])
    return [batches[index] for index in rng.permutation(len(batches))]


def _merged(keys: npt.NDArray[np.integer[Any]], classes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return indices, each class by rising key, with the classes merged evenly from start to end."""
    progress = np.zeros(len(keys))
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        progress[members[np.argsort(keys[members], kind="stable")]] = (np.arange(len(members)) + 0.5) / len(members)
    return np.argsort(progress, kind="stable")


def _cuts(lengths: npt.NDArray[np.integer[Any]], batch_size: int, max_tokens: int) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    start, longest = 0, 0
    for index, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if index > start and (index - start == batch_size or (index - start + 1) * longest > max_tokens):
            cuts.append((start, index))
            start, longest = index, length
    return [*cuts, (start, len(lengths))] if len(lengths) else []
