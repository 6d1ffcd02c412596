"""Answers from the scores of questions, with abstention, promises and sets of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from icalib.calibration.none_of_these import HOW_TO_GET, distribution
from icalib.core.errors import SettingError
from icalib.data.questions import Question
from icalib.data.schema import Split
from icalib.metrics.exchangeability import ShiftTest
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.risk_control import RiskControl
from icalib.metrics.selective import SelectiveRisk
from icalib.pipeline.guarantees import CONFIDENCE
from icalib.pipeline.inference import FinishedRun
from icalib.pipeline.labelled_fits import LabelledFits


@dataclass(frozen=True)
class Wanted:
    """What is asked for besides each question's best candidate.

    Promises are tested, and sets are fitted, on the run's test pools, since those of validation have chosen the model.

    Args:
        coverage: approximate fraction of questions to answer, those with the most probable answers; the threshold is
            the one at which this fraction of the run's validation pools is answered.
        max_error: answer only questions of which at most this fraction is answered wrongly.
        confidence: probability that this promise holds.
        sets: also return sets of candidates that contain a right one with this probability.
        none: also return a distribution over each question's candidates and "none of these".
    """

    coverage: float | None = None
    max_error: float | None = None
    confidence: float = CONFIDENCE
    sets: float | None = None
    none: bool = False


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
    p_none: float | None = None
    """Probability that no candidate is right; None if the run has not fitted it."""
    distribution: list[float] | None = None
    """Probabilities of the candidates and, last, of none of them, which sum to 1; None if not requested."""

    def record(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value is not None}


_OPTIONAL = ("set", "p_none", "distribution")


@dataclass(frozen=True)
class Predicted:
    """Answers in the order of the questions, and notes about them."""

    answers: list[Answer]
    notes: list[str]
    shift: ShiftTest | None = None
    """Whether the questions look like the pools that promises rest on; None if none has as many candidates as these."""


class Answering:
    """Answers questions from their scores, by what a run has fitted and by its labelled pools.

    These are read, and fits to them are computed, once; keep it for further questions.

    Args:
        run: a run of a trained method.
    """

    def __init__(self, run: FinishedRun) -> None:
        self._run = run
        self.fits = LabelledFits(run.folder, run.settings.seed)

    @cached_property
    def of_pools(self) -> bool:
        """Whether probabilities are those of a softmax over a pool, which can't be calibrated for other sizes."""
        return self._run.has_softmax

    def check(self, wanted: Wanted) -> None:
        """Check, before anything is scored, that the run can answer so.

        Raises:
            SettingError: an argument is out of range or excludes another, or the run has not fitted p_none.
            DataError: there are too few pools for such a promise.
        """
        if wanted.none and self._run.fitted.none_of_these is None:
            raise SettingError(f"{self._run.folder.path} has no p_none. {HOW_TO_GET}")
        if wanted.coverage is not None and wanted.max_error is not None:
            raise SettingError(
                "--coverage and --max-error both choose which questions to answer. Give --coverage for a fraction of "
                "questions with an estimate of the errors, or --max-error for a promise about the errors."
            )
        self._selective(wanted)
        self._promise(wanted)

    def calibrated(self, scores: PoolScores) -> PoolScores:
        """Return the scores with probabilities for their numbers of candidates, where that is possible."""
        return scores if self.of_pools else self.fits.calibrated(scores)

    def answers(self, questions: Sequence[Question], scores: PoolScores, wanted: Wanted) -> Predicted:
        """Return the answers to questions from their scores, which are in the same order.

        Raises:
            SettingError, DataError: see `check`; or there are too few pools for such sets.
        """
        self.check(wanted)
        selective, promise, fits = self._selective(wanted), self._promise(wanted), self.fits
        scores = self.calibrated(scores)
        in_set = None if wanted.sets is None else fits.sets(scores, wanted.sets)
        threshold = np.full(scores.num_pools, 0.0 if selective is None else selective.threshold)
        if promise is not None and promise.threshold is not None:
            threshold = np.where(fits.covered(scores), promise.threshold, np.inf)
        answers = _with_none(_answers(questions, scores, threshold, in_set), scores, none=wanted.none)
        shift = fits.compared(scores)
        notes = _size_notes(scores, fits, of_pools=self.of_pools)
        if selective is not None:
            notes.append(_coverage_note(answers, selective, fits.validation.num_pools))
        if promise is not None:
            notes.append(_promise_note(answers, promise, scores, fits))
        if wanted.sets is not None:
            notes.append(_sets_note(answers, wanted.sets, fits))
        notes += _shift_notes(shift, fits.split, asked=len(notes) > 0)
        return Predicted(answers, notes, shift)

    def _selective(self, wanted: Wanted) -> SelectiveRisk | None:
        return None if wanted.coverage is None else self.fits.selective(wanted.coverage)

    def _promise(self, wanted: Wanted) -> RiskControl | None:
        return None if wanted.max_error is None else self.fits.promise(wanted.max_error, wanted.confidence)


def _answers(
    questions: Sequence[Question],
    scores: PoolScores,
    threshold: FloatArray,
    in_set: npt.NDArray[np.bool_] | None,
) -> list[Answer]:
    chosen = [None] * len(questions) if in_set is None else scores.split(in_set)
    return [
        _answer(*parts)
        for parts in zip(
            questions, scores.split(scores.logit), scores.split(scores.prob), chosen, threshold.tolist(), strict=True
        )
    ]


def _with_none(answers: list[Answer], scores: PoolScores, *, none: bool) -> list[Answer]:
    """Return the answers with p_none if the run has fitted it, and with a distribution if that is requested."""
    if scores.p_none is None:
        return answers
    shares = distribution(scores.prob, scores.p_none, scores.offsets) if none else [None] * len(answers)
    return [
        replace(answer, p_none=p_none, distribution=None if share is None else share.tolist())
        for answer, p_none, share in zip(answers, scores.p_none.tolist(), shares, strict=True)
    ]


def _answer(
    question: Question,
    logit: npt.NDArray[np.float64],
    prob: npt.NDArray[np.float64],
    in_set: npt.NDArray[np.bool_] | None,
    threshold: float,
) -> Answer:
    best = int(np.argmax(logit))
    abstained = bool(prob[best] < threshold)
    return Answer(
        id=question.id,
        answer=None if abstained else best,
        text=None if abstained else question.candidates[best],
        prob=float(prob[best]),
        abstained=abstained,
        probs=prob.tolist(),
        set=None if in_set is None else np.flatnonzero(in_set).tolist(),
    )


def _size_notes(scores: PoolScores, fits: LabelledFits, *, of_pools: bool) -> list[str]:
    """Return a note if questions have other numbers of candidates, on which probabilities depend."""
    usual, num_unusual = fits.validation_sizes, fits.num_unusual(scores)
    if not num_unusual:
        return []
    sizes = f"{usual.min()} to {usual.max()}" if len(usual) > 1 else str(usual[0])
    found = (
        f"{num_unusual} of {scores.num_pools} questions have another number of candidates than the run's pools "
        f"({sizes}), for which the probabilities are calibrated"
    )
    if of_pools:
        return [f"{found}: don't rely on the probabilities of these questions"]
    return [
        f"{found}: theirs are calibrated again, for their own numbers, on the same validation pools; this holds if "
        "candidates come from the same source"
    ]


def _coverage_note(answers: Sequence[Answer], selective: SelectiveRisk, num_pools: int) -> str:
    answered = sum(not answer.abstained for answer in answers)
    return (
        f"{answered} of {len(answers)} answered, those with probability {selective.threshold:.3f} or more; expected "
        f"fraction of wrong answers {selective.risk:.1%} (95 % interval {selective.low:.1%} to {selective.high:.1%}), "
        f"measured on {num_pools} validation pools, {selective.coverage:.0%} of which were answered"
    )


def _promise_note(answers: Sequence[Answer], promise: RiskControl, scores: PoolScores, fits: LabelledFits) -> str:
    answered = sum(not answer.abstained for answer in answers)
    num_unusual = int((~fits.covered(scores)).sum())
    return (
        f"{answered} of {len(answers)} answered, those with probability {promise.threshold:.3f} or more; with "
        f"{100 * promise.confidence:g}% confidence at most {100 * promise.max_error:g}% of such answers are wrong if "
        f"the questions are like the {promise.num_pools} {fits.split} pools that this was tested on "
        f"({promise.num_wrong} of {promise.num_answered} answers wrong)"
        + (
            ""
            if fits.split == "test"
            else "; these also chose the model, so that it can be more: evaluate the run on test"
        )
        + (
            f"; {num_unusual} questions with another number of candidates are left unanswered, since no promise "
            "covers them"
            if num_unusual
            else ""
        )
    )


def _shift_notes(shift: ShiftTest | None, split: Split, *, asked: bool) -> list[str]:
    """Return a warning, or that there is none if promises were asked for."""
    if shift is None:
        return []
    compared_with = f"the {shift.num_pools} {split} pools"
    if shift.alarms:
        return [
            f"warning: the questions are not like {compared_with}, most clearly in {shift.differs_in} "
            f"(p = {shift.p_value:.2g}): probabilities, thresholds and sets may not hold for them. Label some of "
            "them, and measure the run on these with icalib evaluate --data"
        ]
    return [f"no sign that the questions differ from {compared_with} (p = {shift.p_value:.2g})"] if asked else []


def _sets_note(answers: Sequence[Answer], coverage: float, fits: LabelledFits) -> str:
    size = np.mean([len(answer.set or ()) for answer in answers])
    return (
        f"sets have {size:.1f} candidates on average and contain a right one with a probability of "
        f"{coverage:.0%} or more if the questions are like the {fits.tested.num_pools} {fits.split} pools that they "
        "were fitted on"
        + (
            ""
            if fits.split == "test"
            else ", which also chose the model, so that it can be less: evaluate the run on test"
        )
    )
