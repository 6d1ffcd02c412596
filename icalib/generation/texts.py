"""Text utilities of generators: sentences, the similarity of two texts, BM25 of any query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from icalib.data.bm25 import bm25_matrices, tokenize
from icalib.data.negatives import SCORE_DIGITS
from icalib.data.schema import Utterance

NEAR_DUPLICATE = 0.9
"""Token F1 above which two texts count as near-duplicates."""


def sentences(text: str) -> list[str]:
    """Split a text into sentences, after . ! ? and at line ends."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\s*\n\s*", text.strip()) if part]


def token_f1(text: str, other: str) -> float:
    """Compute the harmonic mean of the fractions of each text's words that the other contains (SQuAD's measure)."""
    words, other_words = Counter(tokenize(text)), Counter(tokenize(other))
    if not words or not other_words:
        return float(words == other_words)
    return 2 * (words & other_words).total() / (words.total() + other_words.total())


def is_near_duplicate(text: str, other: str) -> bool:
    """Return whether two texts are nearly the same."""
    return token_f1(text, other) > NEAR_DUPLICATE


def question_index(context: Sequence[Utterance]) -> int:
    """Return the index of the question to answer: the user's last utterance, or else the last utterance."""
    from_user = [index for index, utterance in enumerate(context) if utterance.speaker == "user"]
    return from_user[-1] if from_user else len(context) - 1


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
