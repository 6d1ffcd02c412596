"""What every domain pre-training task must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.artifacts import known
from helpers.discovery import discovered
from helpers.observers import DyingEngine, Interrupted, Silent
from helpers.tiny_models import ranker_config
from helpers.train_jobs import answer_job, job_of

from icalib.core.component import with_settings
from icalib.methods.catalogue import load_method
from icalib.methods.method import Method
from icalib.models.checkpoint import read_weights
from icalib.training.domain_pretraining.job import DomainPretrainJob
from icalib.training.domain_pretraining.task import WindowTask
from icalib.training.job import Training
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train

CPU = torch.device("cpu")
TASKS = [f"{task.__module__}.{task.__qualname__}" for task in discovered(WindowTask)]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.rpartition(".")[2])


@pytest.fixture
def job(tokens: Path, tiny_bert: Path) -> Callable[..., DomainPretrainJob]:
    """A domain pre-training job of a task, of a few updates."""

    def made(task: str, **training: Any) -> DomainPretrainJob:
        settings = with_settings(bert(), {"domain_pretraining": task}).domain_pretraining
        assert settings is not None
        quick = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32", **training}
        settings = settings.model_copy(
            update={"max_windows": 12, "training": settings.training.model_copy(update=quick)}
        )
        ranker = ranker_config(tiny_bert, turn_separators=True)
        return job_of(DomainPretrainJob, tiny_bert, tokens, ranker=ranker, task=settings)

    return made


def bert() -> Method:
    return load_method("bert")


def run(training: Training, job: DomainPretrainJob, engine: LocalEngine | None = None) -> Any:
    engine = engine or LocalEngine(training.model, job.loop_settings)
    return train(
        training.model, engine, training.curriculum, job.loop_settings, Silent(), seed=0, validation=training.validation
    )


@every_task
def test_every_update_has_a_gradient_for_every_parameter(task: str, job: Callable[..., DomainPretrainJob]) -> None:
    made = job(task).prepare(CPU)
    for batch in made.curriculum.batches(0):
        made.model.zero_grad()
        _, loss = made.curriculum.losses(made.model, batch, CPU)
        loss.backward()
        assert [name for name, p in made.model.named_parameters() if p.grad is None] == []
        assert torch.isfinite(loss)


@every_task
def test_its_heads_stay_out_of_the_checkpoint(task: str, job: Callable[..., DomainPretrainJob], tmp_path: Path) -> None:
    made = job(task).prepare(CPU)
    made.model.save(tmp_path, made.model.state_dict())
    names = read_weights(tmp_path).keys()
    assert {name.split(".")[0] for name in names} <= {"encoder", "answer_head"}


@every_task
def test_without_an_update_methods_start_as_without_domain_pretraining(
    task: str, job: Callable[..., DomainPretrainJob], tokens: Path, tmp_path: Path
) -> None:
    untouched = job(task).prepare(CPU)
    untouched.model.save(tmp_path, untouched.model.state_dict())
    made = job(task)
    answers = answer_job(tokens, made.ranker, training=made.loop_settings)
    plain = answers.prepare(CPU).model.state_dict()
    started = answers.model_copy(update={"start": known(tmp_path)}).prepare(CPU).model.state_dict()
    assert plain.keys() == started.keys()
    assert [name for name in plain if not torch.equal(plain[name], started[name])] == []


@every_task
def test_an_interrupted_one_ends_with_the_same_bits(
    task: str, job: Callable[..., DomainPretrainJob], tmp_path: Path
) -> None:
    made = job(task, checkpoint_every=2, schedule="plateau")
    undisturbed = made.prepare(CPU)
    whole = run(undisturbed, made)
    dying = made.prepare(CPU)
    engine = DyingEngine(dying.model, made.loop_settings, folder=tmp_path)
    with pytest.raises(Interrupted):
        run(dying, made, engine)
    resumed = made.prepare(CPU)
    continued = LocalEngine(resumed.model, made.loop_settings, folder=tmp_path)
    state = run(resumed, made, continued)
    assert state.log == whole.log
    expected = undisturbed.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.model.state_dict().items())
