"""The negative sampler whose pools don't mark the right response.

If negatives are the responses most like the right one, the right one is recognised without its context: it is the
candidate most like the others. Here all candidates, the right one among them, are neighbours (by TF-IDF cosine) of one
more response, the pivot, which is no candidate. Neighbours of anything are typical responses, and the right one need
not be typical: so candidates also follow one another when neighbours are ordered by their mean cosine with all
responses, and the right one is equally likely to be the first of them, the last or any between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from icalib.core.seeding import child_seed
from icalib.data.bm25 import QUERY_ROWS, load_sparse, save_sparse, tfidf_vectors
from icalib.data.negatives import NegativeSampler, Rows, Scores

_NUM_PIVOTS = 4
"""Pivots that are tried for each response, drawn among its own nearest neighbours."""
_NEAREST = 20
"""Neighbours among which pivots are drawn."""
_NUM_NEIGHBOURS = 40
"""Neighbours of the pivot among which negatives are chosen. With fewer, typicality can't be matched; more are less
similar."""
_WINDOW = 10
"""Consecutive neighbours from which negatives are taken first: the usual size of a pool."""
_DIGITS = 9

Floats = NDArray[np.float64]


def _write_index(index: Path, responses: Iterable[str]) -> None:
    """Write unit TF-IDF vectors [N, V], their transpose, and each response's mean cosine with all responses."""
    vectors = tfidf_vectors(list(responses))
    save_sparse(index, "vector", vectors)
    save_sparse(index, "transposed", vectors.T.tocsr())
    np.save(index / "typicality.npy", vectors @ np.asarray(vectors.mean(0)).ravel())


def _scores(index: Path, queries: range) -> Iterator[tuple[Rows, Scores]]:
    vectors, transposed = load_sparse(index, "vector"), load_sparse(index, "transposed")
    typicality: Floats = np.load(index / "typicality.npy", mmap_mode="r")

    def neighbours(responses: Sequence[int]) -> list[_Neighbours]:
        cosines = csr_array(vectors[np.asarray(responses, np.int64)] @ transposed)
        bounds = zip(cosines.indptr[:-1], cosines.indptr[1:], responses, strict=True)
        return [
            _Neighbours(cosines.indices[first:last], np.round(cosines.data[first:last], _DIGITS), response)
            for first, last, response in bounds
        ]

    for start in range(queries.start, queries.stop, QUERY_ROWS):
        together = range(start, min(start + QUERY_ROWS, queries.stop))
        rngs = [np.random.default_rng(child_seed(0, "pivot", query)) for query in together]
        pivots = [
            rng.permutation(own.ranked(0, _NEAREST))[:_NUM_PIVOTS].tolist()
            for rng, own in zip(rngs, neighbours(together), strict=True)
        ]
        of_pivots = iter(neighbours([pivot for some in pivots for pivot in some]))
        for query, rng, some in zip(together, rngs, pivots, strict=True):
            if some:
                near = _nearest_to_middle([next(of_pivots) for _ in some], query)
                yield _window(near, query, typicality, rng)
            else:
                yield np.empty(0, np.int64), np.empty(0)


class _Neighbours:
    """The responses that share words with one, but not itself, the most similar first; sorted where asked for."""

    def __init__(self, rows: NDArray[Any], cosines: Floats, response: int) -> None:
        others = rows != response
        self._rows, self._distance = rows[others], -cosines[others]

    def __len__(self) -> int:
        return len(self._rows)

    def rank(self, row: int) -> int:
        """Return the number of neighbours before one of them; equally similar ones are in order of their rows."""
        own = self._distance[np.flatnonzero(self._rows == row)[0]]
        return int(np.sum(self._distance < own) + np.sum(self._rows[self._distance == own] < row))

    def ranked(self, start: int, stop: int) -> Rows:
        """Return the neighbours of ranks start … stop − 1, or fewer if there are no more."""
        stop = min(stop, len(self))
        if stop <= start:
            return np.empty(0, np.int64)
        bounds = np.partition(self._distance, (start, stop - 1))
        near = np.flatnonzero((self._distance >= bounds[start]) & (self._distance <= bounds[stop - 1]))
        near = near[np.lexsort((self._rows[near], self._distance[near]))]
        before = int(np.sum(self._distance < bounds[start]))
        return self._rows[near[start - before : stop - before]].astype(np.int64)


def _nearest_to_middle(candidates: list[_Neighbours], response: int) -> Rows:
    """Return `_NUM_NEIGHBOURS` neighbours around a response, of the pivot where it is closest to their middle."""
    ranks = [neighbours.rank(response) for neighbours in candidates]
    best = int(np.argmin([abs(rank - _NUM_NEIGHBOURS // 2) for rank in ranks]))
    start = max(0, min(ranks[best] - _NUM_NEIGHBOURS // 2, len(candidates[best]) - _NUM_NEIGHBOURS))
    return candidates[best].ranked(start, start + _NUM_NEIGHBOURS)


def _window(neighbours: Rows, response: int, typicality: Floats, rng: np.random.Generator) -> tuple[Rows, Scores]:
    """Order neighbours by typicality and score those highest that are in a window around the response."""
    ordered = neighbours[np.lexsort((neighbours, -typicality[neighbours]))]
    own = int(np.flatnonzero(ordered == response)[0])
    first = min(max(0, own - int(rng.integers(_WINDOW))), max(0, len(ordered) - _WINDOW))
    position = np.arange(len(ordered))
    outside = np.maximum(first - position, position - (first + _WINDOW - 1))
    kept = position != own
    return ordered[kept], (1 / (1.0 + np.maximum(outside, 0)))[kept]


neighbourhood = NegativeSampler(_write_index, _scores, equal_blocks=True)
