"""BM25 retrieval with queries that need not be among the indexed texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from icalib.data.bm25 import bm25_matrices, tokenize
from icalib.data.negatives import SCORE_DIGITS


class BM25Index:
    """Ranks texts by their BM25 score for a query, with the scores of `rank_bm25.BM25Okapi`."""

    def __init__(self, texts: Sequence[str]) -> None:
        tokens = [tokenize(text) for text in texts]
        _, weights_NV = bm25_matrices(tokens)
        self._weights_VN = weights_NV.T.tocsr()
        words = dict.fromkeys(chain.from_iterable(tokens))  # by first appearance, as the weights' columns are
        self._columns = {word: column for column, word in enumerate(words)}

    def ranked(self, query: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the indices of texts with a score above 0, best first (ties in order), and their scores."""
        columns = [self._columns[word] for word in tokenize(query) if word in self._columns]
        scores_N = np.round(self._weights_VN[columns].sum(axis=0), SCORE_DIGITS)
        order = np.argsort(-scores_N, kind="stable")[: np.count_nonzero(scores_N > 0)]
        return order, scores_N[order]
