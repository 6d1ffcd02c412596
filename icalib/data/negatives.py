"""Negative samplers: wrong candidates for a right response, from other dialogues of the same split.

`bm25`: the best of `rank_bm25.BM25Okapi`, the right response being the query. `random`: uniform. Both leave out
copies (but for case and white space) of the right response and of one another.

An index lives in a folder of .npy files, which every worker maps into memory instead of receiving it. Mining goes by
blocks of queries; what a query gets depends on (index, seed, its row) alone, not on the blocks.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi
from scipy.sparse import csr_array

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.core.storage import local_path, location, pull
from icalib.data.splits import text_key

NegativeSampler = Literal["bm25", "random"]
SAMPLERS: tuple[NegativeSampler, ...] = ("bm25", "random")
QUERY_BLOCK = 1024
"""Queries a task: a second or so of work."""
QUERY_ROWS = 16
"""Queries scored at once: bounds the score matrix at 16 rows."""
SCORE_DIGITS = 9
"""Scores that agree to so many digits are tied; what is left is the order of a floating-point sum."""

Rows = NDArray[np.int64]


class QueryBlock(NamedTuple):
    """A task of mining: the responses in rows `start` to `stop` of the index at `place` are the queries."""

    place: str
    start: int
    stop: int
    sampler: NegativeSampler
    num_negatives: int
    seed: int


ParallelMap = Callable[[Callable[[QueryBlock], Rows], Sequence[QueryBlock]], Iterable[Rows]]
"""Like the builtin map: results in the order of the blocks."""


def tokenize(text: str) -> list[str]:
    """Lower-cased words, as BM25 sees a text."""
    return re.findall(r"\w+", text.lower())


def write_index(folder: Path, responses: Iterable[str], dialogues: Iterable[int], sampler: NegativeSampler) -> None:
    """Write what mining needs to know of the responses.

    Args:
        folder: gets the .npy files.
        responses: the N responses' texts.
        dialogues: a number for each response that tells its dialogue from others.
        sampler: `random` needs no BM25 weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys, tokens = array("Q"), list[list[str]]()
    for response in responses:
        keys.append(text_key(response))
        if sampler == "bm25":
            tokens.append(tokenize(response))
    np.save(folder / "key.npy", np.frombuffer(keys, dtype=np.uint64))
    np.save(folder / "dialogue.npy", np.fromiter(dialogues, dtype=np.int64, count=len(keys)))
    if sampler == "bm25":
        counts, weights = bm25_matrices(tokens)
        _save_sparse(folder, "count", counts)
        _save_sparse(folder, "weight", weights.T.tocsr())


def bm25_matrices(tokens: Sequence[Sequence[str]]) -> tuple[csr_array, csr_array]:
    """Word counts and BM25 weights, both [N, V], such that counts @ weights.T are BM25Okapi's scores [N, N].

    Weight of word w in response d: idf(w) · f (k1 + 1) / (f + k1 (1 − b + b |d| / avgdl)), f being the count of w
    in d, with BM25Okapi's idf (floored at epsilon times the mean idf), k1 and b.
    """
    if not any(tokens):  # BM25Okapi divides by the number of words
        return csr_array((len(tokens), 1)), csr_array((len(tokens), 1))
    okapi = BM25Okapi(tokens)
    column = {word: place for place, word in enumerate(okapi.idf)}
    lengths = [len(frequencies) for frequencies in okapi.doc_freqs]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    words = chain.from_iterable(okapi.doc_freqs)
    columns = np.fromiter((column[word] for word in words), dtype=np.int32, count=indptr[-1])
    frequencies = chain.from_iterable(frequencies.values() for frequencies in okapi.doc_freqs)
    count = np.fromiter(frequencies, dtype=np.float64, count=indptr[-1])
    idf = np.fromiter(okapi.idf.values(), dtype=np.float64, count=len(column))
    length = np.repeat(np.asarray(okapi.doc_len, dtype=np.float64), lengths)
    norm = okapi.k1 * (1 - okapi.b + okapi.b * length / okapi.avgdl)
    weight = idf[columns] * count * (okapi.k1 + 1) / (count + norm)
    shape = (len(tokens), len(column))
    return csr_array((count, columns, indptr), shape), csr_array((weight, columns, indptr), shape)


def query_blocks(
    index: Path, num_rows: int, *, sampler: NegativeSampler, num_negatives: int, seed: int
) -> list[QueryBlock]:
    """Cut the queries 0 … num_rows − 1 into tasks."""
    return [
        QueryBlock(location(index), start, min(start + QUERY_BLOCK, num_rows), sampler, num_negatives, seed)
        for start in range(0, num_rows, QUERY_BLOCK)
    ]


def mine_block(block: QueryBlock) -> Rows:
    """Negatives of a block's queries: rows of the index, [stop − start, num_negatives], best first.

    Raises:
        DataError: fewer distinct responses from other dialogues than negatives.
    """
    folder = local_path(block.place)
    pull(folder)
    key = np.asarray(np.load(folder / "key.npy", mmap_mode="r"))
    dialogue = np.asarray(np.load(folder / "dialogue.npy", mmap_mode="r"))
    negatives = np.empty((block.stop - block.start, block.num_negatives), dtype=np.int64)
    for place, ranked in enumerate(_ranked(block, folder, dialogue)):
        query = block.start + place
        rng = np.random.default_rng(child_seed(block.seed, "fill", query))
        chosen, taken = list[int](), {int(key[query])}
        for row in chain(ranked, _at_random(rng, len(key))):
            if dialogue[row] != dialogue[query] and int(key[row]) not in taken:
                chosen.append(row)
                taken.add(int(key[row]))
                if len(chosen) == block.num_negatives:
                    break
        else:
            raise DataError(
                f"a response has {len(chosen)} other responses to choose {block.num_negatives} negatives from "
                "(different, and from other dialogues of its split)",
                "Prepare more dialogues, or fewer candidates with --num-candidates.",
            )
        negatives[place] = chosen
    return negatives


def _at_random(rng: np.random.Generator, num_rows: int) -> Iterator[int]:
    """Rows at random: cheap draws first, then every row once, so that none is missed."""
    yield from rng.integers(0, num_rows, size=64).tolist()
    yield from rng.permutation(num_rows).tolist()


def _ranked(block: QueryBlock, folder: Path, dialogue: NDArray[np.int64]) -> Iterator[Iterator[int]]:
    """For each query the rows that its sampler prefers, best first."""
    if block.sampler == "random":
        yield from (iter(()) for _ in range(block.start, block.stop))
        return
    counts, weights = _load_sparse(folder, "count"), _load_sparse(folder, "weight")
    for start in range(block.start, block.stop, QUERY_ROWS):
        stop = min(start + QUERY_ROWS, block.stop)
        scores = csr_array(counts[start:stop] @ weights)
        for query in range(start, stop):
            part = slice(scores.indptr[query - start], scores.indptr[query - start + 1])
            rows, values = scores.indices[part].astype(np.int64), np.round(scores.data[part], SCORE_DIGITS)
            eligible = (values > 0) & (dialogue[rows] != dialogue[query])
            yield _best_first(rows[eligible], values[eligible], block, query)


def _best_first(rows: Rows, scores: NDArray[np.float64], block: QueryBlock, query: int) -> Iterator[int]:
    """Rows by falling score, ties by lot; sorts no more than is asked for."""
    rng = np.random.default_rng(child_seed(block.seed, "ties", query))
    ceiling, size = np.inf, 4 * block.num_negatives
    while len(left := np.flatnonzero(scores < ceiling)):
        kth = min(size, len(left)) - 1
        floor = -np.partition(-scores[left], kth)[kth]
        near = left[scores[left] >= floor]
        near = near[np.argsort(rows[near])]  # the lots go by row, not by the order of the sparse product
        yield from rows[near[np.lexsort((rng.random(len(near)), -scores[near]))]].tolist()
        ceiling, size = floor, size * 4


def _save_sparse(folder: Path, name: str, matrix: csr_array) -> None:
    for part in ("data", "indices", "indptr"):
        np.save(folder / f"{name}_{part}.npy", getattr(matrix, part))
    np.save(folder / f"{name}_shape.npy", np.asarray(matrix.shape))


def _load_sparse(folder: Path, name: str) -> csr_array:
    data, indices, indptr, shape = (
        np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in ("data", "indices", "indptr", "shape")
    )
    return csr_array((data, indices, indptr), tuple(shape.tolist()))
