"""The ranker of a finished run, loaded into memory, with calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from icalib.core.errors import DataError, SettingError
from icalib.core.text import abbreviated
from icalib.data.questions import Pair, Question, as_tuple, unlabelled_pool, validated
from icalib.data.schema import Pool, Utterance
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.parts.loaded import LoadedMembers
from icalib.pipeline.finished import FinishedRun, unlabelled_predictions, unlabelled_scores
from icalib.pipeline.guarantees import CONFIDENCE, AnswerOptions, Predicted

Context = Sequence[str | Mapping[str, str]]
"""The last utterances of a dialogue, oldest first: texts, or objects with `text`, and perhaps a `speaker`."""

_PAIR = "(context, candidate) pair"


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate and its index in the given ones, from 0.

    `rank` is 1 for the best, by `logit`, and tied candidates have their mean rank; `prob` is calibrated. `p_none`, the
    same for all candidates of a question, is None if the run's validation pools all have a right candidate.
    """

    text: str
    index: int
    rank: float
    logit: float
    prob: float
    p_none: float | None = None


@dataclass(frozen=True)
class LoadedRanker:
    """A finished run with its models in memory, and the view rule, calibrator and threshold that it has fitted.

    The same call gives the same numbers. With MC dropout they depend on the whole call: one mask is drawn for a batch
    of pairs, so that other questions or pairs in it change a probability as another seed does. With other methods they
    change it by rounding at most.
    """

    run: FinishedRun
    members: LoadedMembers

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a finished run; a SettingError if its method has no model to load."""
        run = FinishedRun.open(Path(path))
        ranker = cls(run, run.load_members())
        run.keep()
        return ranker

    def rank(self, context: Context, candidates: Iterable[str]) -> list[RankedCandidate]:
        """Rank two or more candidates, best first; tied candidates, e.g. equal texts, keep their order.

        Utterances of the context beyond the run's `context_turns` are ignored, oldest first. A DataError says that the
        context or a candidate is no text, or that there are too few.
        """
        question = validated(Question, {"id": "1", "context": context, "candidates": candidates})
        scores = self._score([question.pool(_pool_id(0), self.run.context_turns)])
        _, group, sizes = np.unique(-scores.logit, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[group]  # candidates with equal logits share their mean rank
        return [
            RankedCandidate(
                text=question.candidates[index],
                index=index,
                rank=float(ranks[index]),
                logit=float(scores.logit[index]),
                prob=float(scores.prob[index]),
                p_none=None if scores.p_none is None else float(scores.p_none[0]),
            )
            for index in map(int, np.argsort(-scores.logit, kind="stable"))
        ]

    def predict(
        self,
        questions: Iterable[Question | Mapping[str, Any]],
        *,
        max_error: float | None = None,
        confidence: float = CONFIDENCE,
        sets: float | None = None,
    ) -> Predicted:
        """Answer questions, as `icalib predict` does.

        A SettingError says that an option is out of range, a DataError that a question is invalid, or that there are
        too few test pools for such a promise or such sets.

        Args:
            questions: objects with `context`, `candidates` and optionally `id`, by default its number from 1.
            max_error: answer only questions of which at most this fraction is answered wrongly.
            confidence: probability that this promise holds.
            sets: also return sets of candidates that contain a right one with this probability.
        """
        for name, value in (("max_error", max_error), ("confidence", confidence), ("sets", sets)):
            if value is not None and not isinstance(value, Real):
                raise SettingError(f"{name} is {value!r}; expected a fraction between 0 and 1, e.g. 0.9.")
        items = _items(questions, "a list of objects with `context` and `candidates`")
        checked = [_question(number, question) for number, question in enumerate(items, start=1)]
        options = AnswerOptions(max_error=max_error, confidence=confidence, sets=sets)
        self.run.guarantees.check(options)
        if not checked:
            return Predicted([], [])
        pools = [question.pool(_pool_id(index), self.run.context_turns) for index, question in enumerate(checked)]
        return self.run.guarantees.answers(checked, self._score(pools), options)

    def predict_proba(self, pairs: Iterable[tuple[Context, str]]) -> FloatArray:
        """Return the calibrated probability [N] that each candidate is right in its context, whatever others there are.

        Candidates of equal contexts are scored together, which is faster. A SettingError says that the method has
        probabilities of whole pools only.
        """
        if self.run.has_softmax:
            raise SettingError(
                f"`{self.run.config.method}` gives probabilities to whole pools, so a pair has none. "
                "Use `rank` or `predict`."
            )
        checked = [_pair(number, pair) for number, pair in enumerate(_items(pairs, f"a list of {_PAIR}s"), start=1)]
        rows_of: dict[tuple[Utterance, ...], list[int]] = {}
        for row, pair in enumerate(checked):
            rows_of.setdefault(pair.context[-self.run.context_turns :], []).append(row)
        pools = [
            unlabelled_pool(_pool_id(index), context, [checked[row].candidate for row in rows])
            for index, (context, rows) in enumerate(rows_of.items())
        ]
        probs = np.empty(len(checked))
        if pools:
            probs[[row for rows in rows_of.values() for row in rows]] = self._score(pools, of_pairs=True).prob
        return probs

    def _score(self, pools: Sequence[Pool], *, of_pairs: bool = False) -> PoolScores:
        return unlabelled_scores(unlabelled_predictions(self.run, self.members, pools, of_pairs=of_pairs), pools)


def _question(number: int, question: Any) -> Question:
    if isinstance(question, Question):
        return question
    if not isinstance(question, Mapping):
        cure = "Expected: an object with `context` and `candidates`."
        raise DataError(f"found {abbreviated(question)}", cure, path=f"question {number}")
    return validated(Question, {"id": str(number), **question}, path=f"question {number}")


def _pair(number: int, pair: Any) -> Pair:
    try:
        context, candidate = pair
    except (TypeError, ValueError):
        raise DataError(f"found {abbreviated(pair)}", f"Expected: a {_PAIR}.", path=f"pair {number}") from None
    return validated(Pair, {"context": context, "candidate": candidate}, path=f"pair {number}")


def _items(values: Any, expected: str) -> tuple[Any, ...]:
    items = as_tuple(values)
    if not isinstance(items, tuple):
        raise DataError(f"found {abbreviated(values)}", f"Expected: {expected}.")
    return cast("tuple[Any, ...]", items)


def _pool_id(index: int) -> str:
    return f"{index:09d}"
