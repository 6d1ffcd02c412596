"""Regimes on real stages, whose jobs are recorded and not computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from unit.regimes.made_scores import Pools, intent_table, score_table

from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import write_json
from icalib.core.job import Job
from icalib.core.stage_cache import Stage, StageName
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.parts.fit import FitJob
from icalib.parts.job import ColumnJob
from icalib.parts.similarity import Similarity
from icalib.parts.sum import PARTS_FILE, PartWeight, SumJob, SumOfParts
from icalib.regimes.ensemble import Ensemble
from icalib.regimes.pseudo_labelling import PseudoLabelJob
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.regime import Outcome
from icalib.regimes.self_training import SelfTraining
from icalib.regimes.supervised import Supervised
from icalib.scoring.gain import GainRule
from icalib.stages.composition import Composition
from icalib.stages.executor import LocalExecutor
from icalib.stages.stages import Stages
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.job import TrainingJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic, MCDropout

CONFIDENT: Pools = [[(0.9, 0.1), (0.05, 0.0)]]
PLAIN, DROPOUT = Deterministic.Config(), MCDropout.Config(num_passes=10)
UNSURE: Pools = [[(0.5, 0.1), (0.4, 0.0)]]


class RecordingCache:
    """Trains nothing; each round's scores and the R@1 of each student on validation are given beforehand."""

    def __init__(self, folder: Path, scores: Sequence[Pools], recalls: Sequence[float]) -> None:
        self._folder, self._scores, self._recalls = folder, iter(scores), recalls
        self.jobs: dict[str, Job] = {}
        self.digests: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []

    def run(self, name: StageName, job: Job, build: Callable[[Path], None]) -> Stage:
        path = self._folder / str(name)
        path.mkdir(parents=True, exist_ok=True)
        self.jobs[str(name)], self.digests[str(name)] = job, job.digest()
        self.requests.append((str(name), job.digest()))
        if isinstance(job, TrainingJob):
            write_json(path / "curve.json", [])
            write_json(path / "result.json", {"best_epoch": 1})
        elif isinstance(job, FitJob):
            parts = tuple(PartWeight(name=part, weight=1.0) for part in job.columns)
            write_json(path / PARTS_FILE, SumOfParts(parts=parts).model_dump(mode="json"))
        elif isinstance(job, SumJob):
            self._write_scores(name, path)
        elif isinstance(job, PseudoLabelJob):
            LocalExecutor().map(job, path, str(name), ignore)
        return Stage(name, job.digest(), path, reused=False, seconds=0.0)

    def _write_scores(self, name: StageName, path: Path) -> None:
        columns = self.jobs[str(name) + "-cross"]
        assert isinstance(columns, ColumnJob)
        if name.group.endswith("student/validation"):
            pools, gold = self._validation(name)
        else:
            pools, gold = next(self._scores), None
        if pools or columns.with_intents:
            table = score_table(pools, pools, gold=gold) if columns.with_intents else score_table(pools, gold=gold)
            pq.write_table(table, path / "scores-000000.parquet")
        if columns.with_intents:
            pq.write_table(intent_table(len(pools)), path / "intents-000000.parquet")

    def _validation(self, name: StageName) -> tuple[Pools, list[int]]:
        """Ten pools of two candidates, of which the given fraction is ranked right."""
        number = round(10 * self._recalls[int(name.group[len("round-")]) - 1])
        return [[(0.9, 0.1), (0.2, 0.1)]] * number + [[(0.3, 0.1), (0.6, 0.1)]] * (10 - number), [0] * 10


class Recorder:
    """The stages of a cross-encoder's run, and what a regime requested of them."""

    def __init__(
        self,
        folder: Path,
        data: Path,
        scores: Sequence[Pools] = (),
        recalls: Sequence[float] = (),
        estimator: AbstractEstimator.Config = PLAIN,
        similarity: Similarity | None = None,
    ) -> None:
        self._cache = RecordingCache(folder, scores, recalls)
        self.stages = Stages(
            composition=Composition(similarity=similarity, intent=None, domain_pretraining=None, uncertainty=estimator),
            folder=data,
            pool_set=read_pool_set(data),
            selection=Selection(labelled_fraction=0.5),
            seed=1,
            cache=self._cache,
            executor=LocalExecutor(),
            emit=ignore,
        )

    @property
    def trained(self) -> dict[str, CrossEncoderJob]:
        return {name: job for name, job in self._cache.jobs.items() if isinstance(job, CrossEncoderJob)}

    @property
    def scored(self) -> dict[str, ColumnJob]:
        return {
            name.removesuffix("-cross"): job for name, job in self._cache.jobs.items() if isinstance(job, ColumnJob)
        }

    def requested(self, name: str) -> list[str]:
        """Return the digests of the jobs that were requested under a name, in order."""
        return [digest for one, digest in self._cache.requests if one == name]

    def checkpoint(self, name: str) -> str:
        """Return the digest of a training's checkpoint."""
        return f"{self._cache.digests[name]}/checkpoint"


def run(recorder: Recorder, **config: Any) -> Outcome:
    by_recall = {"student": TrainingSettings(selection_metric="R@1")}
    return SelfTraining.Config.model_validate(by_recall | config).build().run(recorder.stages)


def models(outcome: Outcome) -> list[str]:
    return [member.model.parts["cross"].digest for member in outcome.members]


def test_each_round_scores_with_the_last_model_and_its_student_goes_on_from_it(
    tmp_path: Path, tiny_pools: Path
) -> None:
    made = Recorder(tmp_path, tiny_pools, [CONFIDENT] * 3, [0.1, 0.3, 0.2])
    outcome = run(made, num_rounds=3, teacher=TrainingSettings(epochs=7))
    students = [f"round-{number}/student" for number in (1, 2, 3)]
    assert {name: job.training.epochs for name, job in made.trained.items()} == {
        "teacher": 7, **dict.fromkeys(students, TrainingSettings().epochs)
    }  # fmt: skip
    labellers = [made.checkpoint(name) for name in ("teacher", *students[:2])]
    rounds = {name: job for name, job in made.scored.items() if "validation" not in name}
    assert list(rounds) == ["round-1/scores", "round-2/scores", "round-3/scores"]
    assert [job.model.digest for job in rounds.values()] == labellers
    assert {(job.split, job.of) for job in rounds.values()} == {("train", "unlabelled")}
    learned = [made.trained[name] for name in students]
    assert [job.start.digest for job in learned if job.start] == labellers
    assert [job.pseudo_labels.path for job in learned if job.pseudo_labels] == [
        tmp_path / f"round-{number}" / "pseudo-labels" for number in (1, 2, 3)
    ]
    assert (outcome.chosen_round, outcome.num_rounds) == (2, 3)
    assert models(outcome) == [made.checkpoint("round-2/student")]
    assert [member.estimator for member in outcome.members] == [made.stages.estimator]


def test_a_student_is_offset_by_the_columns_that_its_pseudo_labels_were_made_from(
    tmp_path: Path, tiny_pools: Path
) -> None:
    made = Recorder(tmp_path, tiny_pools, [CONFIDENT], [0.5], DROPOUT, Similarity())
    run(made, num_rounds=1, pools_per_round=1)
    names = ("round-1/scores-similarity", "round-1/offsets/scores-similarity")
    (of_scores,), (of_offsets,) = map(made.requested, names)
    assert of_scores == of_offsets
    assert made.requested("round-1/student-cross-offsets")


@pytest.mark.parametrize(("recalls", "chosen"), [([0.9, 0.1], 1), ([0.4, 0.4], 2)])
def test_the_kept_model_is_the_best_student_of_equal_ones_the_last(
    tmp_path: Path, tiny_pools: Path, recalls: list[float], chosen: int
) -> None:
    assert run(Recorder(tmp_path, tiny_pools, [CONFIDENT] * 2, recalls), num_rounds=2).chosen_round == chosen


def test_students_are_compared_by_the_scores_that_the_final_evaluation_reads(tmp_path: Path, tiny_pools: Path) -> None:
    made = Recorder(tmp_path, tiny_pools, [CONFIDENT] * 2, [0.3, 0.9], DROPOUT)
    regime = SelfTraining.Config(num_rounds=2).build()
    outcome = regime.run(made.stages)
    assert outcome.chosen_round == 2
    validated = {name: job for name, job in made.scored.items() if "validation" in name}
    assert list(validated) == ["round-1/student/validation/scores", "round-2/student/validation/scores"]
    final = Recorder(tmp_path / "final", tiny_pools, [CONFIDENT], estimator=DROPOUT)
    regime.score(final.stages, outcome.members, "validation")
    assert [job.digest() for job in final.scored.values()] == [validated["round-2/student/validation/scores"].digest()]


def test_rounds_end_when_nothing_is_selected_but_where_the_next_one_draws_other_pools_or_passes(
    tmp_path: Path, tiny_pools: Path
) -> None:
    ends = Recorder(tmp_path / "ends", tiny_pools, [CONFIDENT, UNSURE], [0.5])
    outcome = run(ends, num_rounds=5)
    assert "round-2/scores" in ends.scored
    assert "round-3/scores" not in ends.scored
    assert (outcome.num_rounds, outcome.chosen_round) == (1, 1)
    drawn = Recorder(tmp_path / "drawn", tiny_pools, [UNSURE, CONFIDENT, UNSURE], [0.0, 0.5])
    outcome = run(drawn, num_rounds=3, pools_per_round=1)
    assert list(drawn.trained) == ["teacher", "round-2/student"]
    assert (outcome.num_rounds, outcome.chosen_round) == (2, 2)
    passes = Recorder(tmp_path / "passes", tiny_pools, [UNSURE, UNSURE], estimator=DROPOUT)
    outcome = SelfTraining.Config(with_intents=False, num_rounds=2).build().run(passes.stages)
    assert (len(passes.scored), outcome.num_rounds, outcome.chosen_round) == (2, 0, 0)


def test_precisions_are_of_the_same_model_on_validation(tmp_path: Path, tiny_pools: Path) -> None:
    made = Recorder(tmp_path, tiny_pools, [CONFIDENT, UNSURE])
    rule = PseudoLabelRule.precisions().model_dump()
    outcome = run(made, num_rounds=2, with_intents=False, rule=rule)
    assert {name: (job.split, job.of) for name, job in made.scored.items()} == {
        "round-1/scores": ("train", "unlabelled"), "teacher/validation/scores": ("validation", "all")
    }  # fmt: skip
    assert {job.model.digest for job in made.scored.values()} == {made.checkpoint("teacher")}
    assert outcome.chosen_round == 0  # one validation pool is too few for any precision


@pytest.mark.parametrize("scores", [UNSURE, []])
def test_limit_icast_that_selects_nothing_or_has_no_unlabelled_pools_is_its_teacher(
    tmp_path: Path, tiny_pools: Path, scores: Pools
) -> None:
    made = Recorder(tmp_path, tiny_pools, [scores])
    outcome = run(made, num_rounds=4)
    assert list(made.trained) == ["teacher"]
    assert (outcome.chosen_round, outcome.num_rounds) == (0, 0)
    assert models(outcome) == [made.checkpoint("teacher")]


def test_epochs_are_judged_by_the_rule_that_predicts_but_thresholds_share_the_teacher(
    tmp_path: Path, tiny_pools: Path
) -> None:
    rules = PseudoLabelRule(gain_threshold=0.1), PseudoLabelRule(gain_threshold=0.3, positive_threshold=0.7)
    trained: list[list[CrossEncoderJob]] = []
    for rule in rules:
        made = Recorder(tmp_path / str(rule.gain_threshold), tiny_pools, [CONFIDENT], [0.5])
        SelfTraining.Config(rule=rule, num_rounds=1).build().run(made.stages)
        trained.append(list(made.trained.values()))
    (teacher, *_), (other, *_) = trained
    assert teacher.digest() == other.digest()
    assert teacher.rule == GainRule(gain_threshold=0.02)
    assert [job.rule for _, job in trained] == [GainRule(gain_threshold=0.1), GainRule(gain_threshold=0.3)]


@pytest.mark.parametrize(("with_intents", "gain_threshold"), [(False, -1.0), (True, -1.0), (True, 0.02), (True, 1.0)])
def test_limit_a_teacher_is_supervised_training_with_or_without_intents(
    tmp_path: Path, tiny_pools: Path, with_intents: bool, gain_threshold: float
) -> None:
    students = Recorder(tmp_path / "students", tiny_pools, [CONFIDENT], [0.5])
    alone = Recorder(tmp_path / "alone", tiny_pools)
    rule = PseudoLabelRule(gain_threshold=gain_threshold)
    config = SelfTraining.Config(with_intents=with_intents, num_rounds=1, rule=rule)
    config.build().run(students.stages)
    supervised = Supervised.Config(with_intents=with_intents, rule=rule.of_views())
    supervised.build().run(alone.stages)
    assert students.checkpoint("teacher") == alone.checkpoint("teacher")
    assert {job.rule is not None for job in students.trained.values()} == {with_intents}
    assert {bool(job.ranker.intents) for job in students.trained.values()} == {with_intents}
    assert {job.with_intents for job in students.scored.values()} == {with_intents}
    assert config.needs_intents() == supervised.needs_intents() == with_intents
    assert config.view_rule() == (config.rule.of_views() if with_intents else None)


def test_limit_an_ensemble_of_one_is_bert(tmp_path: Path, tiny_pools: Path) -> None:
    ensemble, bert = Recorder(tmp_path / "ensemble", tiny_pools), Recorder(tmp_path / "bert", tiny_pools)
    outcome = Ensemble.Config(num_members=1).build().run(ensemble.stages)
    Supervised.Config().build().run(bert.stages)
    assert models(outcome) == [bert.checkpoint("teacher")]


def test_an_ensemble_whose_member_fails_does_not_wait_for_the_others(
    tmp_path: Path, tiny_pools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, trains, goes_on = Recorder(tmp_path, tiny_pools), threading.Event(), threading.Event()
    record = made.stages.cache.run

    def train(name: StageName, job: Job, build: Callable[[Path], None]) -> Stage:
        if name.group == "member-1":
            trains.set()
            goes_on.wait(60)
        if name.group == "member-2" and trains.wait(60):
            raise IcalibError("out of memory")
        return record(name, job, build)

    monkeypatch.setattr(made.stages.cache, "run", train)
    monkeypatch.setattr(LocalExecutor, "split", lambda executor, number: (executor, number))
    failing = Ensemble.Config(num_members=3).build()
    started = time.monotonic()
    with pytest.raises(IcalibError, match="out of memory"):
        failing.run(made.stages)
    assert time.monotonic() - started < 30
    goes_on.set()


def test_members_are_independent_models_or_two_readings_of_one(tmp_path: Path, tiny_pools: Path) -> None:
    made = Recorder(tmp_path / "five", tiny_pools)
    five = Ensemble.Config().build().run(made.stages)
    assert len(set(models(five))) == 5
    assert len({job.seed for job in made.trained.values()}) == 5
    stages = Recorder(tmp_path / "two", tiny_pools, estimator=DROPOUT).stages
    two = Ensemble.Config(members="plain_and_estimated").build().run(stages)
    assert len(set(models(two))) == 1
    assert [type(member.estimator) for member in two.members] == [Deterministic.Config, MCDropout.Config]
