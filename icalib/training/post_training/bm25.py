"""BM25 retrieval of similar texts among token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from icalib.data.bm25 import bm25_matrices
from icalib.data.encoding import Ids

_NUM_SIMILAR = 9  # the number of wrong candidates in a pool of ten


class SimilarTexts:
    """BM25 retrieval over word pieces.

    Args:
        texts: token ids of each text.
        dialogues: the dialogue of each text; texts of the query's own dialogue aren't found. None: all are found.
    """

    def __init__(self, texts: Sequence[Ids], dialogues: Sequence[str] | None = None) -> None:
        self._counts, weights = bm25_matrices([text.tolist() for text in texts])
        self._weights = weights.T.tocsr()
        self._texts = np.unique([text.tobytes() for text in texts], return_inverse=True)[1]
        self._dialogues = np.unique(dialogues if dialogues is not None else range(len(texts)), return_inverse=True)[1]

    def rows(self, query: int) -> npt.NDArray[np.int64]:
        """Return the rows of the (at most nine) different texts of other dialogues that are most similar to `query`."""
        scores = (self._counts[query : query + 1] @ self._weights).tocsr()
        other = (self._dialogues[scores.indices] != self._dialogues[query]) & (
            self._texts[scores.indices] != self._texts[query]
        )
        found, values = scores.indices[other], scores.data[other]
        best = np.lexsort((found, -values))[: 4 * _NUM_SIMILAR]
        _, first = np.unique(self._texts[found[best]], return_index=True)  # keeps one of equal texts
        return found[best][np.sort(first)][:_NUM_SIMILAR].astype(np.int64)
