"""Negatives of a whole split, mined block by block and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.core.storage import push, remove
from icalib.data.negatives import ParallelMap, mine_block, query_blocks, write_index
from icalib.data.schema import Split
from icalib.data.settings import PrepareSettings
from icalib.data.spill import Spill

Progress = Callable[[str, int, int | None], None]
"""progress(stage, done, total): total is None while it isn't known."""


def mine_split(
    spill: Spill, folder: Path, split: Split, settings: PrepareSettings, parallel_map: ParallelMap, progress: Progress
) -> NDArray[np.int64] | None:
    """Return the rows of each response's negatives, [num_rows, C − 1], mapped from a file in `folder`; None: no rows.

    If some pools are to lose their right candidate, each response has one negative more, the last.

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
    for start, stop in _even_blocks(spill.num_rows, settings.mining_block):
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
        for block, rows in zip(blocks, parallel_map(mine_block, blocks), strict=True):
            negatives[start + block.start : start + block.stop] = rows + start
            progress(f"mine {split}", start + block.stop, spill.num_rows)
        remove(index)
    return negatives


def _even_blocks(num_rows: int, block_size: int) -> list[tuple[int, int]]:
    """Return blocks of at most `block_size` rows, as even as possible."""
    num_blocks = -(-num_rows // block_size)
    edges = [num_rows * number // num_blocks for number in range(num_blocks + 1)]
    return list(pairwise(edges))


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
