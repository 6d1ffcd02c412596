"""What a finished run can promise about its answers, and answers with abstention and sets of candidates by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from icalib.core.errors import DataError, IcalibError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.data.questions import Question
from icalib.metrics.conformal import ConformalThreshold, answer_sets, fit_conformal
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.risk_control import RiskControl, control_risk

MAX_ERRORS = (0.05, 0.1, 0.2)
"""The α of the promises that reports list."""
CONFIDENCE = 0.9
_KEPT = 128  # clients of a server choose coverages, so that there is no end of different ones


@dataclass(frozen=True)
class AnswerOptions:
    """What is asked for besides each question's best candidate; `LoadedRanker.predict` explains each."""

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


class Guarantees:
    """Promises and answer sets of a finished run; each is fitted once, when it is first needed.

    They are tested and fitted on the run's test pools, which have chosen nothing. Validation pools only propose the
    thresholds that are tested: epoch, round and calibrator suit them, which makes them easier than later pools.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.promise = lru_cache(_KEPT)(self._control_risk)
        self.conformal = lru_cache(_KEPT)(self._fit_conformal)

    @cached_property
    def validation(self) -> PoolScores:
        """Scores of the validation pools."""
        return PoolScores.from_predictions(self._folder.predictions("validation"))

    @cached_property
    def validation_sizes(self) -> IntArray:
        """Numbers of candidates of the validation pools, ascending."""
        return np.unique(self.validation.sizes())

    @cached_property
    def tested(self) -> PoolScores:
        """Scores of the labelled test pools; a DataError if the run has none."""
        if self._folder.has_predictions("test"):
            predictions = self._folder.predictions("test")
            if (predictions["label"].to_numpy() == 1).any():
                return PoolScores.from_predictions(predictions)
        raise DataError(
            "the run has no labelled test pools, on which promises are tested and answer sets are fitted",
            "Use a run whose pools have a labelled test split.",
            path=self._folder.path,
        )

    def keep(self) -> None:
        """Read the pools now: one that is trained again into the folder must not promise for this run's models.

        What can't be read is an error when it is asked for: ranking does without.
        """
        with suppress(IcalibError):
            _ = self.validation
        with suppress(IcalibError):
            _ = self.tested

    def covered(self, scores: PoolScores) -> npt.NDArray[np.bool_]:
        """Return which pools [B] have a number of candidates that promises were tested on."""
        return np.isin(scores.sizes(), self.tested.sizes())

    def sets(self, scores: PoolScores, coverage: float) -> npt.NDArray[np.bool_]:
        """Return which candidates are in answer sets, [N]: all candidates of pools that are not covered."""
        return answer_sets(scores, self.conformal(coverage)) | ~self.covered(scores)[scores.pool]

    def _control_risk(self, max_error: float, confidence: float = CONFIDENCE) -> RiskControl:
        return control_risk(top_candidate(self.tested), top_candidate(self.validation), max_error, confidence)

    def _fit_conformal(self, coverage: float) -> ConformalThreshold:
        return fit_conformal(self.tested, coverage)

    def check(self, options: AnswerOptions) -> None:
        """Refuse, before anything is scored, an option that is out of range, or too few test pools for it."""
        self._promise(options)
        if options.sets is not None:
            self.conformal(options.sets)

    def answers(self, questions: Sequence[Question], scores: PoolScores, options: AnswerOptions) -> Predicted:
        """Return the answers to questions from their scores, which are in the same order; errors are those of `check`.

        Questions with another number of candidates than the test pools are left unanswered, and their sets contain all.
        """
        promise, threshold = self._promise(options), np.zeros(scores.num_pools)
        if promise is not None and promise.threshold is not None:
            threshold = np.where(self.covered(scores), promise.threshold, np.inf)
        in_set = None if options.sets is None else self.sets(scores, options.sets)
        answers = _answers(questions, scores, threshold, in_set)
        return Predicted(answers, [*self.size_notes(scores), *self._promised(answers, scores, promise, options.sets)])

    def _promised(
        self, answers: Sequence[Answer], scores: PoolScores, promise: RiskControl | None, sets: float | None
    ) -> Iterator[str]:
        if promise is None and sets is None:
            return
        if num_others := int((~self.covered(scores)).sum()):
            yield (
                f"no test pool has as many candidates as {num_others} of {scores.num_pools} questions. No promise "
                "covers these questions: if one is asked for they stay unanswered, and their sets hold all candidates"
            )
            if num_others == scores.num_pools:
                return
        if promise is not None:
            yield _promise_note(answers, promise)
        if sets is not None:
            covered = [answer for answer, is_covered in zip(answers, self.covered(scores), strict=True) if is_covered]
            yield _sets_note(covered, sets, self.conformal(sets).num_pools, "the other " * bool(num_others))

    def _promise(self, options: AnswerOptions) -> RiskControl | None:
        """Return a promise that can be kept, if one is asked for."""
        if options.max_error is None:
            if options.confidence != CONFIDENCE:
                raise SettingError(
                    f"the confidence of {options.confidence:g} is that of a promise. Add `max_error`, the largest "
                    "fraction of wrong answers, or leave it out."
                )
            return None
        found = self.promise(options.max_error, options.confidence)
        if found.threshold is None:
            others = "" if found.num_needed is None else ", or label more test pools"
            raise DataError(found.refusal, f"Allow more errors or less confidence{others}.", path=self._folder.path)
        return found

    def size_notes(self, scores: PoolScores, what: str = "questions") -> list[str]:
        """Return a note if some pools have other numbers of candidates than those that calibration was fitted on."""
        usual = self.validation_sizes
        num_unusual = int((~np.isin(scores.sizes(), usual)).sum())
        if not num_unusual:
            return []
        has_gaps = np.ptp(usual) >= len(usual) or len(usual) == 1
        sizes = ", ".join(map(str, usual)) if has_gaps else f"{usual.min()} to {usual.max()}"
        return [
            f"{num_unusual} of {scores.num_pools} {what} have another number of candidates than the run's pools "
            f"({sizes}), for which the probabilities are calibrated: don't rely on theirs"
        ]


def _answers(
    questions: Sequence[Question],
    scores: PoolScores,
    threshold: FloatArray,  # [B], the lowest probability of an answer
    in_set: npt.NDArray[np.bool_] | None,
) -> list[Answer]:
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


def _sets_note(answers: Sequence[Answer], coverage: float, num_pools: int, which: str) -> str:
    size = np.mean([len(answer.set or ()) for answer in answers])
    return (
        f"{which}sets have {size:.1f} candidates on average and, where a candidate is right, contain a right one with "
        f"a probability of {100 * coverage:g}% or more if the questions are like the {num_pools} test pools that they "
        "were fitted on"
    )
