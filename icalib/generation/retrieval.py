"""A generator without a language model: retrieves and rearranges texts of the corpus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from icalib.core.seeding import child_seed
from icalib.data.bm25 import bm25_matrices, tokenize
from icalib.data.generated import TextKind
from icalib.data.negatives import SCORE_DIGITS, Rows
from icalib.data.pools import as_pools, read_column, read_rows
from icalib.data.schema import NONE_RIGHT, Pool, Utterance
from icalib.data.selection import Selection
from icalib.data.splits import text_key
from icalib.generation.generator import AbstractGenerator, Context, Task

_ROWS_AT_A_TIME = 1024
_MAX_REPOSITORY = 50_000
"""Maximum number of answers to retrieve from."""
_NEAR_DUPLICATE = 0.9
"""Token F1 above which two texts count as near-duplicates."""


def training_rows(data: Path, selection: Selection, part: Literal["labelled", "all"]) -> Rows:
    """Return the rows of the training split's labelled pools, or all selected ones; not labelled ones without a right
    candidate: what is generated starts from right answers.
    """
    order = read_column(data, "train", "label_order")
    rows = selection.rows("train", part, order)
    unlabelled = ~np.isin(rows, selection.rows("train", "labelled", order))
    return rows[unlabelled | (read_column(data, "train", "label")[rows] != NONE_RIGHT)]


def training_pools(data: Path, rows: Rows) -> Iterator[Pool]:
    """Iterate over pools of the training split, in the order of `rows`."""
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        yield from as_pools(read_rows(data, "train", rows[start : start + _ROWS_AT_A_TIME]))


def gold(pool: Pool) -> str:
    """Return the right answer of a labelled pool, the first one in the source where there are several."""
    return pool.candidates[pool.label]


def question_index(context: Sequence[Utterance]) -> int:
    """Return the index of the question to answer: the user's last utterance, or else the last utterance."""
    from_user = [index for index, utterance in enumerate(context) if utterance.speaker == "user"]
    return from_user[-1] if from_user else len(context) - 1


def wrong_keys(pool: Pool) -> set[int]:
    """Return the text keys of the wrong candidates of a labelled pool."""
    return {text_key(candidate) for index, candidate in enumerate(pool.candidates) if index not in pool.right}


def is_like_gold(text: str, pool: Pool) -> bool:
    """Return whether a text is nearly the same as a right answer of a labelled pool."""
    return any(is_near_duplicate(text, pool.candidates[index]) for index in pool.right)


def is_near_duplicate(text: str, other: str) -> bool:
    """Return whether the F1 of the words that two texts share (SQuAD's measure) is above `_NEAR_DUPLICATE`."""
    words, other_words = Counter(tokenize(text)), Counter(tokenize(other))
    if not words or not other_words:
        return words == other_words
    return 2 * (words & other_words).total() / (words.total() + other_words.total()) > _NEAR_DUPLICATE


class BM25Index:
    """Ranks texts by their BM25 score for any query, with the scores of `rank_bm25.BM25Okapi`."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
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


@final
class Retrieval(AbstractGenerator):
    """Generates texts by retrieval and rearrangement, without a model: our substitutes for the papers' language models.

    Grey answers are the best BM25 results for the user's last utterance. A wrong candidate is the right answer to
    another context: that of a labelled pool, or of the most similar known answer (BM25). Contexts of unlabelled pools
    would reveal their right answers.
    """

    class Config(AbstractGenerator.Config):
        """Retrieval has no settings of its own."""

        @override
        def title(self, wanted: TextKind) -> str:
            if wanted == "pseudo_positives":
                return "true contexts of wrong answers (else bm25), reordered right answers"
            return "retrieved (bm25 of the last user utterance)"

    def __init__(
        self, config: Config, *, data: Path, selection: Selection, models: Mapping[Task, Path], device: torch.device
    ) -> None:
        self._data, self._selection = data, selection

    @override
    def grey_answers(self, pools: Sequence[Pool], number: int, seed: int) -> list[list[str]]:
        return [list(islice(self._retrieved(pool), number)) for pool in pools]

    @override
    def right_answers(self, pools: Sequence[Pool], seed: int) -> list[list[str]]:
        return [[_reordered(pool, seed)] for pool in pools]

    @override
    def contexts(self, pools: Sequence[Pool], seed: int) -> list[list[Context]]:
        return [
            [
                () if index in pool.right else self._context_of(candidate, pool)
                for index, candidate in enumerate(pool.candidates)
            ]
            for pool in pools
        ]

    def _context_of(self, answer: str, pool: Pool) -> Context:
        """Return a context that is known to have the answer, or that of the most similar known answer."""
        rows = chain(self._known_rows.get(text_key(answer), ()), self._known_index.ranked(answer)[0])
        others = (self._known[row] for row in rows if self._known[row].dialog_id != pool.dialog_id)
        found = next(others, None)
        return tuple(utterance.text for utterance in found.context) if found else ()

    def _retrieved(self, pool: Pool) -> Iterator[str]:
        wrong = wrong_keys(pool)
        for row in self._repository.ranked(pool.context[question_index(pool.context)].text)[0]:
            text = self._repository.texts[int(row)]
            if text_key(text) not in wrong and not is_like_gold(text, pool):
                yield text

    @cached_property
    def _repository(self) -> BM25Index:
        """The distinct answers to retrieve from: candidates of labelled pools, then of others, without their labels."""
        found: dict[int, str] = {}
        labelled = training_rows(self._data, self._selection, "labelled")
        others = np.setdiff1d(training_rows(self._data, self._selection, "all"), labelled)
        for pool in chain(training_pools(self._data, labelled), training_pools(self._data, others)):
            if len(found) >= _MAX_REPOSITORY:
                break
            for candidate in pool.candidates:
                found.setdefault(text_key(candidate), candidate)
        return BM25Index(list(found.values())[:_MAX_REPOSITORY])

    @cached_property
    def _known(self) -> list[Pool]:
        rows = training_rows(self._data, self._selection, "labelled")
        return [pool for pool in training_pools(self._data, rows) if pool.label >= 0]

    @cached_property
    def _known_index(self) -> BM25Index:
        return BM25Index([gold(pool) for pool in self._known])

    @cached_property
    def _known_rows(self) -> dict[int, list[int]]:
        rows: dict[int, list[int]] = {}
        for row, pool in enumerate(self._known):
            rows.setdefault(text_key(gold(pool)), []).append(row)
        return rows


def sentences(text: str) -> list[str]:
    """Split a text into sentences, after . ! ? and at line ends."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\s*\n\s*", text.strip()) if part]


def _reordered(pool: Pool, seed: int) -> str:
    """Return the right answer with its sentences in another order; unchanged if it has only one sentence."""
    parts = sentences(gold(pool))
    if len(set(parts)) < 2:
        return gold(pool)
    rng = np.random.default_rng(child_seed(seed, pool.pool_id))  # the same whatever the pool's shard
    shuffled = parts
    while shuffled == parts:
        shuffled = [parts[int(index)] for index in rng.permutation(len(parts))]
    return " ".join(shuffled)
