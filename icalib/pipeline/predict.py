"""Answering questions with a finished run in this process, with abstention and sets of candidates."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icalib.core.run_folder import RunFolder
from icalib.core.seeding import child_seed
from icalib.data.questions import Question
from icalib.data.schema import Pool, Split
from icalib.metrics.conformal import ConformalThreshold, answer_sets, fit_conformal
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.selective import SelectiveRisk, selective_risk
from icalib.pipeline.evaluation import prediction_table
from icalib.pipeline.inference import FinishedRun
from icalib.scoring.loaded import LoadedMembers


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

    def record(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {name: value for name, value in asdict(self).items() if name != "set" or value is not None}


@dataclass(frozen=True)
class Predicted:
    """Answers in the order of the questions, and notes about them."""

    answers: list[Answer]
    notes: list[str]


def predict(
    run: FinishedRun,
    questions: Sequence[Question],
    *,
    coverage: float | None = None,
    sets: float | None = None,
    members: LoadedMembers | None = None,
) -> Predicted:
    """Answer questions.

    Args:
        run: a run of a trained method.
        questions: one or more.
        coverage: approximate fraction of questions to answer, those with the most probable answers; the threshold is
            the one at which this fraction of the run's validation pools is answered.
        sets: also return sets of candidates that contain a right one with this probability, fitted on the run's test
            pools, since those of validation have chosen the model.
        members: the run's models if they are already loaded.

    Raises:
        SettingError: the method was not trained, or `coverage` or `sets` is out of range.
        DataError: there are too few pools for such sets.
    """
    validation = PoolScores.from_predictions(run.folder.predictions("validation"))
    top = top_candidate(validation)
    selective = None if coverage is None else selective_risk(top.prob, 1 - top.hit, coverage)
    calibration, split = pools_for_sets(run.folder)
    conformal = None if sets is None else fit_conformal(calibration, sets)
    context_turns = run.folder.context_turns
    pools = [question.pool(f"{index:09d}", context_turns) for index, question in enumerate(questions)]
    scores = score_unlabelled(run, members or run.load_members(), pools)
    answers = _answers(questions, scores, selective, conformal)
    notes = _size_notes(scores, validation)
    if selective is not None:
        notes.append(_coverage_note(answers, selective, validation.num_pools))
    if conformal is not None:
        notes.append(_sets_note(answers, conformal, split))
    return Predicted(answers, notes)


def score_unlabelled(run: FinishedRun, members: LoadedMembers, pools: Sequence[Pool]) -> PoolScores:
    """Score pools with unknown labels in this process; their ids must ascend."""
    shard = run.settings.settings.scoring.pools_per_shard
    with tempfile.TemporaryDirectory() as folder:
        store = members.tokenize(pools, Path(folder) / "questions.arrow")
        tables = [
            prediction_table(
                [
                    members.score(
                        store,
                        range(start, min(start + shard, len(pools))),
                        child_seed(run.settings.seed, "questions", start),
                    )
                ],
                run.fitted,
            )
            for start in range(0, len(pools), shard)
        ]
    table = pa.concat_tables(tables)
    return PoolScores(
        pool_ids=tuple(pool.pool_id for pool in pools),
        logit=table["logit"].to_numpy(),
        prob=table["prob"].to_numpy(),
        label=np.full(table.num_rows, -1, np.int64),
        offsets=np.cumsum([0, *(len(pool.candidates) for pool in pools)]),
    )


def pools_for_sets(folder: RunFolder) -> tuple[PoolScores, Split]:
    """Return the pools that answer sets are fitted on, and their split.

    The best epoch and round, the calibrator and the threshold are those that suit the validation pools, which makes
    them easier than later pools; the test pools have chosen nothing. Without labelled test pools, those of
    validation are returned.
    """
    if folder.has_predictions("test"):
        predictions = folder.predictions("test")
        if (predictions["label"].to_numpy() == 1).any():
            return PoolScores.from_predictions(predictions), "test"
    return PoolScores.from_predictions(folder.predictions("validation")), "validation"


def _answers(
    questions: Sequence[Question],
    scores: PoolScores,
    selective: SelectiveRisk | None,
    conformal: ConformalThreshold | None,
) -> list[Answer]:
    cuts = scores.offsets[1:-1]
    in_set = [None] * len(questions) if conformal is None else np.split(answer_sets(scores, conformal), cuts)
    threshold = 0.0 if selective is None else selective.threshold
    return [
        _answer(question, logit, prob, chosen, threshold)
        for question, logit, prob, chosen in zip(
            questions, np.split(scores.logit, cuts), np.split(scores.prob, cuts), in_set, strict=True
        )
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


def _size_notes(scores: PoolScores, validation: PoolScores) -> list[str]:
    """Return a note if questions have other numbers of candidates, on which probabilities depend."""
    usual = np.unique(np.diff(validation.offsets))
    num_unusual = int((~np.isin(np.diff(scores.offsets), usual)).sum())
    if not num_unusual:
        return []
    sizes = f"{usual.min()} to {usual.max()}" if len(usual) > 1 else str(usual[0])
    return [
        f"{num_unusual} of {scores.num_pools} questions have another number of candidates than the run's pools "
        f"({sizes}), for which the probabilities are calibrated: don't rely on the probabilities of these questions"
    ]


def _coverage_note(answers: Sequence[Answer], selective: SelectiveRisk, num_pools: int) -> str:
    answered = sum(not answer.abstained for answer in answers)
    return (
        f"{answered} of {len(answers)} answered, those with probability {selective.threshold:.3f} or more; expected "
        f"fraction of wrong answers {selective.risk:.1%} (95 % interval {selective.low:.1%} to {selective.high:.1%}), "
        f"measured on {num_pools} validation pools, {selective.coverage:.0%} of which were answered"
    )


def _sets_note(answers: Sequence[Answer], conformal: ConformalThreshold, split: Split) -> str:
    size = np.mean([len(answer.set or ()) for answer in answers])
    return (
        f"sets have {size:.1f} candidates on average and contain a right one with a probability of "
        f"{conformal.coverage:.0%} or more if the questions are like the {conformal.num_pools} {split} pools that they "
        "were fitted on"
        + ("" if split == "test" else ", which also chose the model, so that it can be less: evaluate the run on test")
    )
