"""Batches of nearly equal length under a token budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Batch = npt.NDArray[np.int64]

_POOL_OF_BATCHES = 32  # batches whose examples are sorted by length together; more: less padding, less mixing


def ordered_batches(lengths: Sequence[int] | npt.NDArray[np.int64], batch_size: int, max_tokens: int) -> list[Batch]:
    """Indices by rising length, cut so that no batch exceeds `batch_size` examples or `max_tokens` padded tokens.

    An example longer than `max_tokens` is a batch of its own.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    return [order[start:end] for start, end in _cuts(lengths[order], batch_size, max_tokens)]


def shuffled_batches(
    lengths: Sequence[int] | npt.NDArray[np.int64], batch_size: int, max_tokens: int, rng: np.random.Generator
) -> list[Batch]:
    """Batches of one epoch: shuffled examples, bucketed by length, in shuffled order."""
    lengths = np.asarray(lengths)
    order = rng.permutation(len(lengths))
    batches: list[Batch] = []
    for start in range(0, len(order), batch_size * _POOL_OF_BATCHES):
        bucket = order[start : start + batch_size * _POOL_OF_BATCHES]
        batches += [bucket[batch] for batch in ordered_batches(lengths[bucket], batch_size, max_tokens)]
    return [batches[place] for place in rng.permutation(len(batches))]


def _cuts(sorted_lengths: npt.NDArray[np.int64], batch_size: int, max_tokens: int) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(sorted_lengths) + 1):
        full = end - start == batch_size
        last = end == len(sorted_lengths)
        if last or full or (end - start + 1) * sorted_lengths[end] > max_tokens:
            cuts.append((start, end))
            start = end
    return cuts
