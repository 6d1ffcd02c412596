from __future__ import annotations

from pathlib import Path

import pytest

from icalib.demo import demo_settings
from icalib.methods.method import Method
from icalib.regimes.self_training import SelfTraining
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings


def first_training(method: Method) -> TrainingSettings:
    regime = method.regime
    assert isinstance(regime, Supervised.Config | SelfTraining.Config)
    return regime.trainings()[0]


@pytest.mark.parametrize(("student", "teacher"), [("tsst", "bert"), ("icast", "icast-teacher")])
def test_a_student_differs_from_its_teacher_by_self_training_alone(student: str, teacher: str) -> None:
    methods = {run.method: run.settings for run in demo_settings(Path("pools"), seed=1)}
    first, second = methods[student], methods[teacher]
    assert first.model_copy(update={"regime": second.regime}) == second
    assert first_training(first) == first_training(second)  # so that the teacher is trained once
    assert first.regime.needs_intents() == second.regime.needs_intents() == (teacher == "icast-teacher")
