"""Negatives of a whole split, mined block by block and kept on disk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.core.storage import push, remove
from icalib.data.negatives import NEGATIVE_SAMPLERS, ParallelMap, QueryBlock, mine_block, query_blocks, write_index
from icalib.data.schema import Split
from icalib.data.settings import PrepareSettings
from icalib.data.spill import Spill
from icalib.data.splits import text_key

Progress = Callable[[str, int, int | None], None]
"""progress(stage, done, total): total is None while it isn't known."""
_MIN_TOGETHER = 100
"""Responses among which there are similar ones; fewer are together only in splits that have no more."""


def responses_together(num_rows: Mapping[Split, int], settings: PrepareSettings) -> int:
    """Return about how many responses are mined together, those of one block; `num_rows` is that of each split."""
    if not NEGATIVE_SAMPLERS.load(settings.negative_sampler).equal_blocks:
        return settings.mining_block
    smallest = min((rows for rows in num_rows.values() if rows), default=_MIN_TOGETHER)
    return min(settings.mining_block, max(_MIN_TOGETHER, smallest))


def mine_split(
    spill: Spill,
    folder: Path,
    split: Split,
    settings: PrepareSettings,
    parallel_map: ParallelMap,
    progress: Progress,
    *,
    together: int,
) -> NDArray[np.int64] | None:
    """Return the rows of each response's negatives, [num_rows, C − 1], mapped from a file in `folder`; None: no rows.

    If some pools are to lose their right candidate, each response has one negative more, the last.

    Args:
        together: about how many responses are mined together.

    Raises:
        DataError: too few responses.
    """
    if not spill.num_rows:
        return None
    num_negatives = settings.num_candidates - (0 if settings.unanswerable else 1)
    if spill.num_rows <= num_negatives:
        raise DataError(
            f"the {split} split has {spill.num_rows} responses, fewer than the {num_negatives + 1} candidates "
            "of a pool" + (", one of them for pools without a right one" if settings.unanswerable else ""),
            "Prepare more dialogues, or fewer candidates with --candidates.",
        )
    path = folder / f"{split}_negatives.npy"
    shape = (spill.num_rows, num_negatives)
    negatives = np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=shape)
    for group in _groups(_blocks(spill, together, settings.mining_block, num_negatives), settings.mining_block):
        queries: list[tuple[int, QueryBlock]] = []  # with the row of the split at which their index begins
        for start, stop in group:
            index = folder / f"{split}_index_{start}"
            write_index(
                index, _Responses(spill, start, stop), _dialogue_numbers(spill, start, stop), settings.negative_sampler
            )
            push(index)
            blocks = query_blocks(
                index,
                stop - start,
                sampler=settings.negative_sampler,
                num_negatives=num_negatives,
                seed=child_seed(settings.seed, "negatives", split, start),
            )
            queries += [(start, block) for block in blocks]
        mined = parallel_map(mine_block, [block for _, block in queries])
        for (start, block), rows in zip(queries, mined, strict=True):
            negatives[start + block.start : start + block.stop] = rows + start
            progress(f"mine {split}", start + block.stop, spill.num_rows)
        for start, _ in group:
            remove(folder / f"{split}_index_{start}")
    return negatives


def _blocks(spill: Spill, size: int, max_size: int, num_negatives: int) -> list[tuple[int, int]]:
    """Return even blocks of about `size` rows, and at most `max_size`.

    Where a block has too few different responses, blocks are made twice as large until all have enough.
    """
    minimum = -(-spill.num_rows // max_size)
    num_blocks = max(minimum, round(spill.num_rows / size))
    while num_blocks > minimum and not all(
        _has_enough(spill, start, stop, num_negatives) for start, stop in _even_blocks(spill.num_rows, num_blocks)
    ):
        num_blocks = max(minimum, num_blocks // 2)
    return _even_blocks(spill.num_rows, num_blocks)


def _groups(blocks: Sequence[tuple[int, int]], max_rows: int) -> Iterator[list[tuple[int, int]]]:
    """Yield consecutive blocks that are mined in parallel, of at most `max_rows` rows together, or single ones."""
    group: list[tuple[int, int]] = []
    for block in blocks:
        if group and block[1] - group[0][0] > max_rows:
            yield group
            group = []
        group.append(block)
    yield group


def _even_blocks(num_rows: int, num_blocks: int) -> list[tuple[int, int]]:
    edges = [num_rows * number // num_blocks for number in range(num_blocks + 1)]
    return list(pairwise(edges))


def _has_enough(spill: Spill, start: int, stop: int, num_negatives: int) -> bool:
    """Return whether there are enough different responses for each, from other dialogues than its own."""
    responses = _Responses(spill, start, stop)
    dialogues_of = defaultdict[int, set[int]](set)
    for key, dialogue in zip(map(text_key, responses), _dialogue_numbers(spill, start, stop), strict=True):
        dialogues_of[key].add(dialogue)
    only_in = Counter(dialogue for dialogues in dialogues_of.values() if len(dialogues) == 1 for dialogue in dialogues)
    return len(dialogues_of) - 1 - max(only_in.values(), default=0) >= num_negatives


@dataclass(frozen=True)
class _Responses:
    """The right responses in some rows of a spill; each iteration reads them from disk."""

    spill: Spill
    start: int
    stop: int

    def __iter__(self) -> Iterator[str]:
        return (row["candidates"][0] for row in self.spill.rows(self.start, self.stop, ["candidates"]))


def _dialogue_numbers(spill: Spill, start: int, stop: int) -> Iterator[int]:
    """Yield for each row a number that differs between dialogues; a dialogue's rows are consecutive."""
    number, last = -1, None
    for row in spill.rows(start, stop, ["dialog_id"]):
        if row["dialog_id"] != last:
            number, last = number + 1, row["dialog_id"]
        yield number
