from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from unit.regimes.made_scores import Pools, intent_table, score_table

from icalib.core.events import ignore
from icalib.core.job import LocalJob
from icalib.core.stage_cache import Stage, StageName
from icalib.regimes.ensemble import Ensemble
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.regime import AnswerTraining, Outcome, Scoring, Trained, checkpoint
from icalib.regimes.self_training import SelfTraining
from icalib.regimes.supervised import Supervised
from icalib.scoring.gain import GainRule
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

CONFIDENT: Pools = [[(0.9, 0.1), (0.05, 0.0)]]
PLAIN, DROPOUT = Deterministic.Config(), MCDropout.Config(num_passes=10)
UNSURE: Pools = [[(0.5, 0.1), (0.4, 0.0)]]


class RecordingStages:
    """Trains nothing; each round's scores and the R@1 of each student on validation are given beforehand."""

    def __init__(
        self,
        folder: Path,
        scores: Sequence[Pools] = (),
        recalls: Sequence[float] = (),
        estimator: AbstractEstimator.Config = PLAIN,
    ) -> None:
        self._folder, self._scores, self._recalls = folder, list(scores), list(recalls)
        self.estimator = estimator
        self.trained: list[tuple[str, AnswerTraining]] = []
        self.scored: list[tuple[str, Trained, Scoring]] = []
        self.validated: list[tuple[str, Scoring]] = []

    def _stage(self, name: StageName) -> Stage:
        path = self._folder / str(name)
        path.mkdir(parents=True)
        return Stage(name, f"digest of {name}", path, reused=False, seconds=0.0)

    def train(self, name: StageName, training: AnswerTraining) -> Trained:
        self.trained.append((str(name), training))
        return Trained(name, {"cross": checkpoint(self._stage(name))})

    def train_members(self, names: Sequence[StageName], training: AnswerTraining) -> list[Trained]:
        return [self.train(name, training) for name in names]

    def score(self, name: StageName, model: Trained, scoring: Scoring) -> Stage:
        stage = self._stage(name)
        if name.group.endswith("student/validation"):
            return self._validation_of(stage, scoring)
        pools = self._scores[len(self.scored)]
        self.scored.append((str(name), model, scoring))
        if pools or scoring.intents:
            table = score_table(pools, pools) if scoring.intents else score_table(pools)
            pq.write_table(table, stage.path / "scores-000000.parquet")
        if scoring.intents:
            pq.write_table(intent_table(len(pools)), stage.path / "intents-000000.parquet")
        return stage

    def _validation_of(self, stage: Stage, scoring: Scoring) -> Stage:
        """Ten pools of two candidates in the plain view, of which the given fraction is ranked right."""
        self.validated.append((str(stage.name), scoring))
        number = round(10 * self._recalls[int(stage.name.group[len("round-")]) - 1])
        right: Pools = [[(0.9, 0.1), (0.2, 0.1)]] * number + [[(0.3, 0.1), (0.6, 0.1)]] * (10 - number)
        intents = [[(0.5, 0.0), (0.5, 0.0)]] * 10 if scoring.intents else None
        pq.write_table(score_table(right, intents, gold=[0] * 10), stage.path / "scores-000000.parquet")
        if scoring.intents:
            pq.write_table(intent_table(10), stage.path / "intents-000000.parquet")
        return stage

    def run(self, name: StageName, job: LocalJob) -> Stage:
        made = self._stage(name)
        job.compute(made.path, str(name), ignore)
        return made


def run(stages: RecordingStages, **config: Any) -> Outcome:
    by_recall = {"student": TrainingSettings(selection_metric="R@1")}
    return SelfTraining.Config.model_validate(by_recall | config).build().run(stages)


def test_each_round_scores_with_the_last_model_and_its_student_goes_on_from_it(tmp_path: Path) -> None:
    stages = RecordingStages(tmp_path, [CONFIDENT] * 3, [0.1, 0.3, 0.2])
    trained = run(stages, num_rounds=3, teacher=TrainingSettings(epochs=7))
    assert [(name, training.settings.epochs) for name, training in stages.trained] == [
        ("teacher", 7), *((f"round-{n}/student", TrainingSettings().epochs) for n in (1, 2, 3)),
    ]  # fmt: skip
    labellers = ["teacher", "round-1/student", "round-2/student"]
    assert [model.parts["cross"].digest for _, model, _ in stages.scored] == [
        f"digest of {name}/checkpoint" for name in labellers
    ]
    students = [training.student for _, training in stages.trained[1:]]
    assert [str(student.teacher.name) for student in students if student] == labellers
    assert [(str(student.name), student.scoring) for student in students if student] == [
        (name, scoring) for name, _, scoring in stages.scored
    ]
    assert [(str(p.name), p.name.round) for student in students if student and (p := student.pseudo_labels)] == [
        (f"round-{n}/pseudo-labels", n) for n in (1, 2, 3)
    ]
    assert {(scoring.split, scoring.part) for _, _, scoring in stages.scored} == {("train", "unlabelled")}
    assert (trained.chosen_round, trained.num_rounds) == (2, 3)
    assert [(member.model.parts["cross"].digest, member.estimator) for member in trained.members] == [
        ("digest of round-2/student/checkpoint", stages.estimator)
    ]


@pytest.mark.parametrize(("recalls", "chosen"), [([0.9, 0.1], 1), ([0.4, 0.4], 2)])
def test_the_kept_model_is_the_best_student_of_equal_ones_the_last(
    tmp_path: Path, recalls: list[float], chosen: int
) -> None:
    assert run(RecordingStages(tmp_path, [CONFIDENT] * 2, recalls), num_rounds=2).chosen_round == chosen


def test_students_are_compared_by_the_scores_that_the_final_evaluation_reads(tmp_path: Path) -> None:
    stages = RecordingStages(tmp_path, [CONFIDENT] * 2, [0.3, 0.9], DROPOUT)
    regime = SelfTraining.Config(num_rounds=2).build()
    trained = regime.run(stages)
    assert trained.chosen_round == 2
    assert [name for name, _ in stages.validated] == [
        "round-1/student/validation/scores", "round-2/student/validation/scores"
    ]  # fmt: skip
    final = RecordingStages(tmp_path / "final", [CONFIDENT])
    regime.score(final, trained.members, "validation")
    assert {repr(scoring) for _, scoring in stages.validated} == {repr(scoring) for _, _, scoring in final.scored}


def test_rounds_end_when_nothing_is_selected_but_where_the_next_one_draws_other_pools_or_passes(tmp_path: Path) -> None:
    ends = RecordingStages(tmp_path / "ends", [CONFIDENT, UNSURE], [0.5])
    trained = run(ends, num_rounds=5)
    assert (len(ends.scored), trained.num_rounds, trained.chosen_round) == (2, 1, 1)
    drawn = RecordingStages(tmp_path / "drawn", [UNSURE, CONFIDENT, UNSURE], [0.0, 0.5])
    trained = run(drawn, num_rounds=3, pools_per_round=1)
    assert [name for name, _ in drawn.trained] == ["teacher", "round-2/student"]
    assert (trained.num_rounds, trained.chosen_round) == (2, 2)
    passes = RecordingStages(tmp_path / "passes", [UNSURE, UNSURE], estimator=DROPOUT)
    trained = SelfTraining.Config(with_intents=False, num_rounds=2).build().run(passes)
    assert (len(passes.scored), trained.num_rounds, trained.chosen_round) == (2, 0, 0)


def test_precisions_are_of_the_same_model_on_validation(tmp_path: Path) -> None:
    stages = RecordingStages(tmp_path, [CONFIDENT, UNSURE], [])
    rule = PseudoLabelRule.precisions().model_dump()
    trained = run(stages, num_rounds=2, with_intents=False, rule=rule)
    assert [(name, scoring.split, scoring.part) for name, _, scoring in stages.scored] == [
        ("round-1/scores", "train", "unlabelled"), ("teacher/validation/scores", "validation", "all")
    ]  # fmt: skip
    assert {model.parts["cross"].digest for _, model, _ in stages.scored} == {"digest of teacher/checkpoint"}
    assert trained.chosen_round == 0  # one validation pool is too few for any precision


@pytest.mark.parametrize("scores", [UNSURE, []])
def test_limit_icast_that_selects_nothing_or_has_no_unlabelled_pools_is_its_teacher(
    tmp_path: Path, scores: Pools
) -> None:
    stages = RecordingStages(tmp_path, [scores])
    trained = run(stages, num_rounds=4)
    assert [name for name, _ in stages.trained] == ["teacher"]
    assert (trained.chosen_round, trained.num_rounds) == (0, 0)
    assert [member.model.parts["cross"].digest for member in trained.members] == ["digest of teacher/checkpoint"]


def test_epochs_are_judged_by_the_rule_that_predicts_but_thresholds_share_the_teacher(tmp_path: Path) -> None:
    rules = PseudoLabelRule(gain_threshold=0.1), PseudoLabelRule(gain_threshold=0.3, positive_threshold=0.7)
    trained = []
    for rule in rules:
        stages = RecordingStages(tmp_path / str(rule.gain_threshold), [CONFIDENT], [0.5])
        SelfTraining.Config(rule=rule, num_rounds=1).build().run(stages)
        trained.append([training for _, training in stages.trained])
    (teacher, *_), (other, *_) = trained
    assert teacher == other
    assert teacher.rule == GainRule()
    assert [training.rule for _, training in trained] == [GainRule(gain_threshold=0.1), GainRule(gain_threshold=0.3)]


@pytest.mark.parametrize("with_intents", [True, False])
def test_limit_a_teacher_is_supervised_training_with_or_without_intents(tmp_path: Path, with_intents: bool) -> None:
    students, alone = RecordingStages(tmp_path / "students", [CONFIDENT], [0.5]), RecordingStages(tmp_path / "alone")
    config = SelfTraining.Config(with_intents=with_intents, num_rounds=1)
    config.build().run(students)
    supervised = Supervised.Config(with_intents=with_intents)
    supervised.build().run(alone)
    assert students.trained[:1] == alone.trained
    assert {training.rule is not None for _, training in students.trained} == {with_intents}
    assert {scoring.intents is not None for _, _, scoring in students.scored} == {with_intents}
    assert config.needs_intents() == supervised.needs_intents() == with_intents
    assert config.view_rule() == (config.rule if with_intents else None)


def test_limit_an_ensemble_of_one_is_bert(tmp_path: Path) -> None:
    ensemble, bert = RecordingStages(tmp_path / "ensemble"), RecordingStages(tmp_path / "bert")
    trained = Ensemble.Config(num_members=1).build().run(ensemble)
    Supervised.Config().build().run(bert)
    assert ensemble.trained == bert.trained
    assert len(trained.members) == 1


def test_members_are_independent_models_or_two_readings_of_one(tmp_path: Path) -> None:
    stages = RecordingStages(tmp_path / "five")
    five = Ensemble.Config().build().run(stages)
    assert len({member.model.parts["cross"].path for member in five.members}) == 5
    two = (
        Ensemble.Config(members="plain_and_estimated").build().run(RecordingStages(tmp_path / "two", estimator=DROPOUT))
    )
    assert len({member.model.parts["cross"].path for member in two.members}) == 1
    assert [type(member.estimator) for member in two.members] == [Deterministic.Config, MCDropout.Config]
