"""Negatives: wrong candidates for a right response, from other dialogues of the same split.

A `NegativeSampler` scores responses as negatives of one another. Mining takes the best ones for each response, without
its own dialogue and copies (but for case and white space) of right ones and one another, and fills up at random.
An index is a folder of .npy files that workers map into memory; negatives depend on (index, seed, row) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icalib.core.errors import DataError, SettingError
from icalib.core.imports import Extensions, failed
from icalib.core.seeding import child_seed
from icalib.core.storage import local_path, location, pull
from icalib.core.text import short_repr
from icalib.data.splits import wording_key

QUERY_BLOCK = 1024
"""Queries of one task: a second or so of work."""
SCORE_DIGITS = 9
"""Scores that agree to so many digits are tied; the rest is the order of a floating-point sum."""

SAMPLER_FOLDER = "sampler"
"""Subfolder of an index that holds the sampler's own files."""

Rows = NDArray[np.int64]
Scores = NDArray[np.floating]


@dataclass(frozen=True)
class NegativeSampler:
    """How wrong candidates are chosen: by scores of the N responses as negatives of one another.

    Args:
        write_index: writes what `scores` needs into an empty folder, from the N texts in order (iterable again).
        scores: from that folder and some queries (rows), yields for each query rows (int64, each once) and their
            scores. Those above 0 become negatives, the highest first, ties at random; then others are drawn at random.
            A query's scores must not depend on the other queries.
        equal_blocks: mine all splits in blocks of about the size of the smallest one. Among more responses the nearest
            are more similar, so a large split's pools would be harder, and what is fitted on them wouldn't hold
            elsewhere.
    """

    write_index: Callable[[Path, Iterable[str]], None]
    scores: Callable[[Path, range], Iterator[tuple[Rows, Scores]]]
    equal_blocks: bool = False


NEGATIVE_SAMPLERS = Extensions(
    NegativeSampler,
    setting="negative_sampler",
    group="icalib.negative_samplers",
    builtin={
        "neighbourhood": "icalib.data.neighbourhood:neighbourhood",
        "bm25-response": "icalib.data.bm25:bm25",
        "random": "icalib.data.negatives:random",
    },
)


class QueryBlock(NamedTuple):
    """A task of mining: the responses in rows `start` to `stop` of the index in `folder` are the queries."""

    folder: str
    start: int
    stop: int
    sampler: str
    num_negatives: int
    seed: int


ParallelMap = Callable[[Callable[[QueryBlock], Rows], Sequence[QueryBlock]], Iterable[Rows]]
"""Like the builtin map: results in the order of the blocks."""


def write_index(index: Path, responses: Iterable[str], dialogues: Rows, queries: Rows, sampler: str) -> None:
    """Write what mining needs to know of N responses, which are iterated more than once.

    `dialogues` [N] are numbers; `queries` [N], too, rising: the right responses to one query have the same.
    """
    own = index / SAMPLER_FOLDER
    own.mkdir(parents=True, exist_ok=True)
    np.save(index / "key.npy", np.fromiter(map(wording_key, responses), dtype=np.uint64))
    np.save(index / "dialogue.npy", dialogues)
    np.save(index / "query.npy", queries)
    NEGATIVE_SAMPLERS.load(sampler).write_index(own, responses)


def query_blocks(index: Path, num_rows: int, *, sampler: str, num_negatives: int, seed: int) -> list[QueryBlock]:
    """Cut the queries 0 … num_rows − 1 into tasks."""
    return [
        QueryBlock(location(index.absolute()), start, min(start + QUERY_BLOCK, num_rows), sampler, num_negatives, seed)
        for start in range(0, num_rows, QUERY_BLOCK)
    ]


def mine_block(block: QueryBlock) -> Rows:
    """Return the negatives of a block's queries: rows of the index, [stop − start, num_negatives], best first."""
    index = local_path(block.folder)
    pull(index)
    key = np.asarray(np.load(index / "key.npy", mmap_mode="r"))
    dialogue = np.asarray(np.load(index / "dialogue.npy", mmap_mode="r"))
    number = np.asarray(np.load(index / "query.npy", mmap_mode="r"))
    queries = range(block.start, block.stop)
    negatives = np.empty((len(queries), block.num_negatives), dtype=np.int64)
    for query, (rows, scores) in zip(queries, _scored(block, index, len(key)), strict=True):
        scores = np.round(scores, SCORE_DIGITS)
        eligible = (scores > 0) & (dialogue[rows] != dialogue[query])
        preferred = _best_first(rows[eligible], scores[eligible], block, query)
        rng = np.random.default_rng(child_seed(block.seed, "fill", query))
        same = slice(*np.searchsorted(number, [number[query], number[query] + 1]))
        chosen, taken = list[int](), set(key[same].tolist())
        for row in chain(preferred, _at_random(rng, len(key))):
            if dialogue[row] != dialogue[query] and int(key[row]) not in taken:
                chosen.append(row)
                taken.add(int(key[row]))
                if len(chosen) == block.num_negatives:
                    break
        else:
            raise DataError(
                f"a response has {len(chosen)} other responses to choose {block.num_negatives} negatives from "
                "(different, and from other dialogues of its split)",
                "Prepare more dialogues, give each a `split` so that none is so small, or ask for fewer --candidates.",
            )
        negatives[query - block.start] = chosen
    return negatives


def _scored(block: QueryBlock, index: Path, num_rows: int) -> Iterator[tuple[Rows, Scores]]:
    """Yield what the sampler yields for each query; a SettingError says that it can't be used, or that it failed."""
    what, wanted, number = f"the negative sampler `{block.sampler}`", block.stop - block.start, 0
    try:
        sampler = NEGATIVE_SAMPLERS.load(block.sampler)
        for rows, scores in sampler.scores(index / SAMPLER_FOLDER, range(block.start, block.stop)):
            number, rows, scores = number + 1, np.asarray(rows), np.asarray(scores)
            if rows.shape != scores.shape or rows.ndim != 1 or np.isnan(scores).any() or not _exist(rows, num_rows):
                raise SettingError(
                    f"{what} yielded the rows {short_repr(rows.tolist())} and scores {short_repr(scores.tolist())}; "
                    f"expected a number, not NaN, for each of some rows from 0 to {num_rows - 1}."
                )
            if number <= wanted:
                yield rows, scores
    except (Exception, SystemExit) as error:
        raise failed(f"{what} failed", error) from error
    if number != wanted:
        raise SettingError(f"{what} yielded {number} times for {wanted} queries; expected once for each.")


def _exist(rows: Rows, num_rows: int) -> bool:
    return not rows.size or (rows.min() >= 0 and rows.max() < num_rows)


def _at_random(rng: np.random.Generator, num_rows: int) -> Iterator[int]:
    """Yield rows at random: cheap draws first, then every row once, so that none is missing."""
    yield from rng.integers(0, num_rows, size=64).tolist()
    yield from rng.permutation(num_rows).tolist()


def _best_first(rows: Rows, scores: Scores, block: QueryBlock, query: int) -> Iterator[int]:
    """Yield rows by falling score, ties in random order; no more are sorted than are needed."""
    rng = np.random.default_rng(child_seed(block.seed, "ties", query))
    ceiling, size = np.inf, 4 * block.num_negatives
    while len(left := np.flatnonzero(scores < ceiling)):
        kth = min(size, len(left)) - 1
        floor = -np.partition(-scores[left], kth)[kth]
        near = left[scores[left] >= floor]
        near = near[np.argsort(rows[near])]  # the random order of ties must not depend on the order of `rows`
        yield from rows[near[np.lexsort((rng.random(len(near)), -scores[near]))]].tolist()
        ceiling, size = floor, size * 4


random = NegativeSampler(
    lambda index, responses: None, lambda index, queries: ((np.empty(0, np.int64), np.empty(0)) for _ in queries)
)
