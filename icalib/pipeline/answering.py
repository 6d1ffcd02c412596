"""Answers from the scores of questions, with abstention, promises and sets of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from icalib.core.errors import DataError
from icalib.data.questions import Question
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.risk_control import RiskControl
from icalib.pipeline.guarantees import CONFIDENCE, Guarantees
from icalib.pipeline.inference import FinishedRun


@dataclass(frozen=True)
class AnswerOptions:
    """What is asked for besides each question's best candidate.

    `max_error`: answer only questions of which at most this fraction is answered wrongly, which holds with probability
    `confidence`. `sets`: also return sets of candidates that contain a right one with this probability.
    """

    max_error: float | None = None
    confidence: float = CONFIDENCE
    sets: float | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to one question; candidates have indices from 0."""

    id: str
    answer: int | None
    """The best candidate; None if the run abstains."""
    text: str | None
    prob: float
    """Probability that the best candidate is right, also given if the run abstains."""
    abstained: bool
    probs: list[float]
    set: list[int] | None
    """Candidates that contain a right one with the requested probability; None if not requested."""
    p_none: float | None
    """Probability that no candidate is right; None if the run has not fitted it."""

    def record(self) -> dict[str, Any]:
        """Return a JSON object."""
        optional = {"set", "p_none"}
        return {name: value for name, value in asdict(self).items() if name not in optional or value is not None}


@dataclass(frozen=True)
class Predicted:
    """Answers in the order of the questions, and notes about them."""

    answers: list[Answer]
    notes: list[str]


class Answering:
    """Answers questions from their scores, by what a run promises; keep it for further questions."""

    def __init__(self, run: FinishedRun) -> None:
        self._run = run
        self.guarantees = Guarantees(run.folder)

    def check(self, options: AnswerOptions) -> None:
        """Refuse, before anything is scored, an option that is out of range, or too few test pools for it."""
        self._promise(options)
        if options.sets is not None:
            self.guarantees.conformal(options.sets)

    def answers(self, questions: Sequence[Question], scores: PoolScores, options: AnswerOptions) -> Predicted:
        """Return the answers to questions from their scores, which are in the same order; errors are those of `check`.

        Questions with another number of candidates than the test pools are not covered by a promise: they are left
        unanswered, and their sets contain all candidates.
        """
        promise, threshold = self._promise(options), np.zeros(scores.num_pools)
        if promise is not None and promise.threshold is not None:
            threshold = np.where(self.guarantees.covered(scores), promise.threshold, np.inf)
        in_set = None if options.sets is None else self.guarantees.sets(scores, options.sets)
        answers = _answers(questions, scores, threshold, in_set)
        notes = self._size_notes(scores)
        if promise is not None:
            notes.append(_promise_note(answers, promise))
        if options.sets is not None:
            notes.append(_sets_note(answers, options.sets, self.guarantees.tested.num_pools))
        return Predicted(answers, notes)

    def _promise(self, options: AnswerOptions) -> RiskControl | None:
        """Return a promise that can be kept, if one is asked for."""
        if options.max_error is None:
            return None
        found = self.guarantees.promise(options.max_error, options.confidence)
        if found.threshold is None:
            raise DataError(
                found.refusal,
                "Allow more errors or less confidence (--max-error, --confidence), or label more test pools.",
                path=self._run.folder.path,
            )
        return found

    def _size_notes(self, scores: PoolScores) -> list[str]:
        """Return a note if questions have other numbers of candidates, on which probabilities depend."""
        usual = self.guarantees.validation_sizes
        num_unusual = int((~np.isin(np.diff(scores.offsets), usual)).sum())
        if not num_unusual:
            return []
        sizes = f"{usual.min()} to {usual.max()}" if len(usual) > 1 else str(usual[0])
        return [
            f"{num_unusual} of {scores.num_pools} questions have another number of candidates than the run's pools "
            f"({sizes}), for which the probabilities are calibrated: don't rely on theirs. No promise covers these "
            "questions: --max-error leaves them unanswered, and --sets gives all their candidates"
        ]


def _answers(
    questions: Sequence[Question],
    scores: PoolScores,
    threshold: FloatArray,
    in_set: npt.NDArray[np.bool_] | None,
) -> list[Answer]:
    """Return the answers to questions; `threshold` [B] is the lowest probability of an answer."""
    sets = [None] * len(questions) if in_set is None else scores.split(in_set)
    p_none = [None] * len(questions) if scores.p_none is None else scores.p_none.tolist()
    logits, probs = scores.split(scores.logit), scores.split(scores.prob)
    answers: list[Answer] = []
    for index, question in enumerate(questions):
        best = int(np.argmax(logits[index]))
        abstained = bool(probs[index][best] < threshold[index])
        chosen = sets[index]
        answers.append(
            Answer(
                id=question.id,
                answer=None if abstained else best,
                text=None if abstained else question.candidates[best],
                prob=float(probs[index][best]),
                abstained=abstained,
                probs=probs[index].tolist(),
                set=None if chosen is None else np.flatnonzero(chosen).tolist(),
                p_none=p_none[index],
            )
        )
    return answers


def _promise_note(answers: Sequence[Answer], promise: RiskControl) -> str:
    answered = sum(not answer.abstained for answer in answers)
    return (
        f"{answered} of {len(answers)} answered, those with probability {promise.threshold:.3f} or more; with "
        f"{100 * promise.confidence:g}% confidence at most {100 * promise.max_error:g}% of such answers are wrong if "
        f"the questions are like the {promise.num_pools} test pools that this was tested on "
        f"({promise.num_wrong} of {promise.num_answered} answers wrong)"
    )


def _sets_note(answers: Sequence[Answer], coverage: float, num_pools: int) -> str:
    size = np.mean([len(answer.set or ()) for answer in answers])
    return (
        f"sets have {size:.1f} candidates on average and contain a right one with a probability of "
        f"{100 * coverage:g}% or more if the questions are like the {num_pools} test pools that they were fitted on"
    )
