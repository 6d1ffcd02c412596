from __future__ import annotations

from pathlib import Path

import pytest

from icalib.demo import demo_settings
from icalib.methods.method import Method
from icalib.regimes.self_training import SelfTraining
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

TRAINED = ("bert", "tsst", "icast-teacher", "icast")


@pytest.fixture(scope="module")
def methods() -> dict[str, Method]:
    return {run.method: run.settings for run in demo_settings(Path("pools"), seed=1)}


def first_training(method: Method) -> TrainingSettings:
    regime = method.regime
    assert isinstance(regime, Supervised.Config | SelfTraining.Config)
    return regime.trainings()[0]


def test_the_demo_shows_icast_with_five_passes_beside_what_it_is_compared_with(methods: dict[str, Method]) -> None:
    assert list(methods) == ["bm25", "bi-encoder", "candidates-only", *TRAINED]
    for name in TRAINED:
        assert all(training.epochs for training in methods[name].regime.trainings())
        assert methods[name].similarity is not None
    for name in ("icast-teacher", "icast"):
        assert methods[name].uncertainty == MCDropout.Config(num_passes=5)


@pytest.mark.parametrize(("student", "teacher"), [("tsst", "bert"), ("icast", "icast-teacher")])
def test_a_student_differs_from_its_teacher_by_self_training_alone(
    methods: dict[str, Method], student: str, teacher: str
) -> None:
    first, second = methods[student], methods[teacher]
    assert first.model_copy(update={"regime": second.regime}) == second
    assert first_training(first) == first_training(second)  # so that the teacher is trained once
    assert first.regime.needs_intents() == second.regime.needs_intents() == (teacher == "icast-teacher")
