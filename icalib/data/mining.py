"""Pools on disk between the passes of `prepare`, and negatives of a whole split, mined block by block."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.core.storage import push, remove
from icalib.data.negatives import (
    NEGATIVE_SAMPLERS,
    ParallelMap,
    QueryBlock,
    Rows,
    mine_block,
    query_blocks,
    write_index,
)
from icalib.data.schema import POOL_SCHEMA, Split
from icalib.data.settings import PrepareSettings
from icalib.data.splits import wording_key

Progress = Callable[[str, int, int | None], None]
"""progress(stage, done, total): total is None while it isn't known."""
MINING_BLOCK = 200_000
"""Maximum number of responses that are mined together; larger splits are mined block by block."""
_EQUAL_BLOCK = 5_000
"""The same for samplers with `equal_blocks`: each query is compared with its whole block, so that mining takes time in
proportion to the responses; and the hardness of the pools stops growing with the corpus."""
_MIN_TOGETHER = 100
"""Responses among which there are similar ones; fewer are together only in splits that have no more."""
BATCH_ROWS = 1024


class Spill:
    """Rows of pools in an Arrow file, written once, then read in order or at random, never held whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_rows = 0
        self._pending: list[dict[str, Any]] = []
        self._writer = pa.ipc.new_file(path, POOL_SCHEMA)
        self._batches: list[pa.RecordBatch] = []

    def append(self, row: dict[str, Any]) -> None:
        """Add a row."""
        self._pending.append(row)
        self.num_rows += 1
        if len(self._pending) == BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        """End writing and open the file for reading."""
        if self._pending:
            self._flush()
        self._writer.close()
        reader = pa.ipc.open_file(pa.memory_map(str(self.path)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]

    def rows(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield all rows in order, as dictionaries."""
        for batch in self._batches:
            yield from (batch.select(columns) if columns else batch).to_pylist()

    def response(self, row: int) -> str:
        """Return the first candidate of a row."""
        number, index = divmod(row, BATCH_ROWS)
        return cast("str", self._batches[number]["candidates"][index][0].as_py())

    def _flush(self) -> None:
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._pending, schema=POOL_SCHEMA))
        self._pending = []


def responses_together(num_rows: Mapping[Split, int], settings: PrepareSettings) -> int:
    """Return about how many responses are mined together, those of one block.

    Blocks of `neighbourhood` have about as many as the smallest split, at most 5,000, so that the pools of all splits
    are alike.
    """
    if not NEGATIVE_SAMPLERS.load(settings.negative_sampler).equal_blocks:
        return MINING_BLOCK
    smallest = min((rows for rows in num_rows.values() if rows), default=_MIN_TOGETHER)
    return min(_EQUAL_BLOCK, max(_MIN_TOGETHER, smallest))


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
    """
    if not spill.num_rows:
        return None
    progress(f"mine {split}", 0, spill.num_rows)  # the first block may take long, and what was before is over
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
    dialogues, answered = _dialogues_and_queries(spill)
    blocks = _blocks(spill, dialogues, answered, together, num_negatives, child_seed(settings.seed, "blocks", split))
    queries: list[tuple[Rows, QueryBlock]] = []  # with the rows of the split that their index has
    indices: list[Path] = []
    for number, rows in enumerate(blocks):
        index = folder / f"{split}_index_{number}"
        write_index(index, _Responses(spill, rows), dialogues[rows], answered[rows], settings.negative_sampler)
        push(index)
        indices.append(index)
        seed = child_seed(settings.seed, "negatives", split, number)
        sampler = settings.negative_sampler
        tasks = query_blocks(index, len(rows), sampler=sampler, num_negatives=num_negatives, seed=seed)
        queries += [(rows, task) for task in tasks]
    done = 0
    mined = parallel_map(mine_block, [task for _, task in queries])
    try:
        for (rows, task), found in zip(queries, mined, strict=True):
            negatives[rows[task.start : task.stop]] = rows[found]
            done += len(found)
            progress(f"mine {split}", done, spill.num_rows)
    except DataError as error:
        number = len(np.unique(dialogues))
        raise DataError(f"the {split} split has {number} dialogues: {error.found}", error.cure) from error
    for index in indices:
        remove(index)
    return negatives


def _blocks(spill: Spill, dialogues: Rows, queries: Rows, size: int, num_negatives: int, seed: int) -> list[Rows]:
    """Return the rows of blocks of about `size` rows, and not many more than `MINING_BLOCK`.

    Each has dialogues drawn at random, as neighbours in a source may be of one topic, and negatives too similar then. A
    block with too few different responses is merged with the next one.
    """
    num_blocks = max(-(-spill.num_rows // MINING_BLOCK), round(spill.num_rows / size))
    if num_blocks == 1:
        return [np.arange(spill.num_rows)]
    num_rows = np.bincount(dialogues)
    order = np.random.default_rng(seed).permutation(len(num_rows))
    middle = np.cumsum(num_rows[order]) - num_rows[order] / 2
    block_of = np.empty_like(order)
    block_of[order] = (middle * num_blocks / spill.num_rows).astype(np.int64)
    by_block = np.argsort(block_of[dialogues], kind="stable")
    drawn = np.split(by_block, np.flatnonzero(np.diff(block_of[dialogues][by_block])) + 1)
    num_right = np.bincount(queries)[queries]  # of each row's query
    merged: list[Rows] = []
    parts, dialogues_of, most = list[Rows](), defaultdict[int, set[int]](set), 0
    for rows in drawn:
        parts.append(rows)
        most = max(most, int(num_right[rows].max()))
        for key, dialogue in zip(map(wording_key, _Responses(spill, rows)), dialogues[rows].tolist(), strict=True):
            dialogues_of[key].add(dialogue)
        if _have_enough(dialogues_of.values(), num_negatives + most) or sum(map(len, parts)) > MINING_BLOCK:
            merged.append(np.sort(np.concatenate(parts)))
            parts, dialogues_of, most = [], defaultdict[int, set[int]](set), 0
    return [*merged[:-1], np.sort(np.concatenate([*merged[-1:], *parts]))]


def _have_enough(dialogues_of: Collection[set[int]], number: int) -> bool:
    """Return whether each dialogue has enough different responses of others, given the dialogues that each is in."""
    only_in = Counter(dialogue for dialogues in dialogues_of if len(dialogues) == 1 for dialogue in dialogues)
    return len(dialogues_of) - max(only_in.values(), default=0) >= number


@dataclass(frozen=True)
class _Responses:
    """The right responses in some rows of a spill; each iteration reads them from disk."""

    spill: Spill
    rows: Rows

    def __iter__(self) -> Iterator[str]:
        return map(self.spill.response, self.rows.tolist())


def _dialogues_and_queries(spill: Spill) -> tuple[Rows, Rows]:
    """Return for each row the number of its dialogue and that of its query, both from 0.

    The rows of a query follow one another, and have the same dialogue and context.
    """
    dialogues, queries = np.empty(spill.num_rows, np.int64), np.empty(spill.num_rows, np.int64)
    numbers: dict[str, int] = {}
    query, before = -1, None
    for index, row in enumerate(spill.rows(columns=["dialog_id", "context"])):
        query, before = query + (row != before), row
        dialogues[index], queries[index] = numbers.setdefault(row["dialog_id"], len(numbers)), query
    return dialogues, queries
