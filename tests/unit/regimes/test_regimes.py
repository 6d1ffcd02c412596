from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from unit.regimes.made_scores import Pools, intent_table, score_table

from icalib.core.stage_cache import Stage
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.config import RankerConfig
from icalib.regimes.ensemble import Ensemble
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.regime import Parts, Trained
from icalib.regimes.self_training import SelfTraining
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Deterministic, MCDropout

CONFIDENT: Pools = [[(0.9, 0.1), (0.05, 0.0)]]
UNSURE: Pools = [[(0.5, 0.1), (0.4, 0.0)]]


class MadeShards:
    """One shard of scores."""

    def __init__(self, stage: Stage, pools: Pools, with_intents: bool) -> None:
        self.stage, self._pools, self._with_intents = stage, pools, with_intents

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        if self._with_intents:
            yield score_table(self._pools, self._pools), intent_table([1.0] * len(self._pools))
        else:
            yield score_table(self._pools), None


class RecordingBench:
    """Trains nothing; each round's scores and each student's validation figure are given beforehand."""

    def __init__(self, folder: Path, scores: Sequence[Pools] = (), figures: Sequence[float] = ()) -> None:
        self._folder, self._scores, self._figures = folder, list(scores), list(figures)
        self.trained: list[dict[str, Any]] = []
        self.scored: list[dict[str, Any]] = []

    def _stage(self, name: str) -> Stage:
        path = self._folder / name
        path.mkdir(parents=True)
        return Stage(name, f"digest of {name}", path, reused=False, seconds=0.0)

    def train(self, name: str, **given: Any) -> Stage:
        self.trained.append({"name": name, **given})
        return self._stage(name)

    def train_members(self, names: Sequence[str], **given: Any) -> list[Stage]:
        return [self.train(name, with_intents=False, **given) for name in names]

    def score(self, name: str, model: Stage, **given: Any) -> MadeShards:
        self.scored.append({"name": name, "model": model, **given})
        return MadeShards(self._stage(name), self._scores[len(self.scored) - 1], given["with_intents"])

    def stage(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None]) -> Stage:
        made = self._stage(name)
        build(made.path)
        return made

    def figure(self, model: Stage) -> float:
        return self._figures[int(model.name.split("/")[0].removeprefix("round-")) - 1]


PARTS = Parts(
    ranker=RankerConfig(),
    loss=BinaryCrossEntropy.Config(),
    estimator=Deterministic.Config(),
    start=Stage("post-training", "digest", Path("start"), reused=True, seconds=0.0),
)


def run(bench: RecordingBench, **config: Any) -> Trained:
    return SelfTraining.Config.model_validate(config).build().run(bench, PARTS)


def test_each_round_scores_with_the_last_model_and_its_student_goes_on_from_it(tmp_path: Path) -> None:
    bench = RecordingBench(tmp_path, [CONFIDENT] * 3, [0.1, 0.3, 0.2])
    trained = run(bench, num_rounds=3)
    assert [call["name"] for call in bench.trained] == [
        "teacher", "round-1/student", "round-2/student", "round-3/student",
    ]  # fmt: skip
    assert [call["number"] for call in bench.trained[1:]] == [1, 2, 3]
    assert bench.trained[0]["start"] is PARTS.start
    labellers = ["teacher", "round-1/student", "round-2/student"]
    assert [call["model"].name for call in bench.scored] == labellers
    assert [call["start"].name for call in bench.trained[1:]] == labellers
    assert [call["pseudo_labels"].name for call in bench.trained[1:]] == [f"round-{n}/pseudo-labels" for n in (1, 2, 3)]
    assert {(call["split"], call["part"]) for call in bench.scored} == {("train", "unlabelled")}
    assert (trained.chosen_round, trained.num_rounds) == (2, 3)
    assert [(member.model.name, member.estimator) for member in trained.members] == [
        ("round-2/student", PARTS.estimator)
    ]


def test_teacher_and_student_have_their_own_schedules(tmp_path: Path) -> None:
    bench = RecordingBench(tmp_path, [CONFIDENT], [0.5])
    run(bench, num_rounds=1, teacher=TrainingSettings(epochs=7), student=TrainingSettings(epochs=2))
    assert [call["training"].epochs for call in bench.trained] == [7, 2]


@pytest.mark.parametrize(
    ("keep", "figures", "chosen"), [("last", [0.9, 0.1], 2), ("best", [0.9, 0.1], 1), ("best", [0.4, 0.4], 2)]
)
def test_the_kept_model_is_the_best_or_the_last_student(
    tmp_path: Path, keep: str, figures: list[float], chosen: int
) -> None:
    assert run(RecordingBench(tmp_path, [CONFIDENT] * 2, figures), num_rounds=2, keep=keep).chosen_round == chosen


def test_rounds_end_when_nothing_is_selected(tmp_path: Path) -> None:
    bench = RecordingBench(tmp_path, [CONFIDENT, UNSURE], [0.5])
    trained = run(bench, num_rounds=5)
    assert len(bench.scored) == 2
    assert (trained.num_rounds, trained.chosen_round) == (1, 1)


@pytest.mark.parametrize("scores", [UNSURE, []])
def test_limit_icast_that_selects_nothing_or_has_no_unlabelled_pools_is_its_teacher(
    tmp_path: Path, scores: Pools
) -> None:
    bench = RecordingBench(tmp_path, [scores])
    trained = run(bench, num_rounds=4)
    assert [call["name"] for call in bench.trained] == ["teacher"]
    assert (trained.chosen_round, trained.num_rounds) == (0, 0)
    assert [member.model.name for member in trained.members] == ["teacher"]


def test_limit_icasts_teacher_is_supervised_training_with_intents(tmp_path: Path) -> None:
    icast, supervised = RecordingBench(tmp_path / "icast", [UNSURE]), RecordingBench(tmp_path / "supervised")
    run(icast, num_rounds=1)
    Supervised.Config(with_intents=True).build().run(supervised, PARTS)
    assert icast.trained[:1] == supervised.trained


def test_limit_self_training_without_intents_has_berts_teacher_and_asks_for_no_intents(tmp_path: Path) -> None:
    tsst, bert = RecordingBench(tmp_path / "tsst", [CONFIDENT], [0.5]), RecordingBench(tmp_path / "bert")
    config = SelfTraining.Config(with_intents=False, num_rounds=1)
    config.build().run(tsst, PARTS)
    Supervised.Config().build().run(bert, PARTS)
    assert tsst.trained[:1] == bert.trained
    assert not any(call["with_intents"] for call in [*tsst.trained, *tsst.scored])
    assert not config.needs_intents()
    assert config.view_rule() is None


def test_limit_an_ensemble_of_one_is_bert(tmp_path: Path) -> None:
    ensemble, bert = RecordingBench(tmp_path / "ensemble"), RecordingBench(tmp_path / "bert")
    trained = Ensemble.Config(num_members=1).build().run(ensemble, PARTS)
    Supervised.Config().build().run(bert, PARTS)
    assert ensemble.trained == bert.trained
    assert len(trained.members) == 1


def test_members_are_independent_models_or_two_readings_of_one(tmp_path: Path) -> None:
    five = Ensemble.Config().build().run(RecordingBench(tmp_path / "five"), PARTS)
    assert len({member.model.path for member in five.members}) == 5
    parts = replace(PARTS, estimator=MCDropout.Config(num_passes=10))
    two = Ensemble.Config(members="plain_and_estimated").build().run(RecordingBench(tmp_path / "two"), parts)
    assert len({member.model.path for member in two.members}) == 1
    assert [type(member.estimator) for member in two.members] == [Deterministic.Config, MCDropout.Config]


def test_a_regime_says_which_rule_chooses_views_at_test() -> None:
    rule = PseudoLabelRule(gain_threshold=0.1)
    assert SelfTraining.Config(rule=rule).view_rule() == rule
    assert Supervised.Config(with_intents=True).needs_intents()
    assert Supervised.Config().view_rule() is None
