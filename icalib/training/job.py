"""Base of training jobs, and running one in a worker with any engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from icalib.core.files import read_json, write_json
from icalib.core.job import Job
from icalib.core.seeding import child_seed
from icalib.core.stage_cache import share
from icalib.core.storage import pull
from icalib.encoders.transformer import BackboneEncoder
from icalib.heads.head import PosteriorHead, PosteriorTask
from icalib.models.checkpoint import POSTERIOR, save_posterior
from icalib.models.memory import reraise_oom
from icalib.models.model import Model
from icalib.models.ranker import load_ranker
from icalib.models.word_rows import train_occurring_rows
from icalib.training.loop import Curriculum, EarlyStoppingData, Engine, LoopState, Observer, train
from icalib.training.settings import TrainingSettings

_SMALLER_POSTERIOR = (
    "Its matrix grows with the square of `head.num_features` (random features) or `head.support.size` (Pólya-Gamma). "
    "Lower that setting, or use a machine with more memory."
)

RunTasks = Callable[[Sequence[PosteriorTask]], Sequence[Any]]
"""Runs tasks in any processes and any order, and returns their results in the order of the tasks."""


@dataclass(frozen=True)
class Training:
    """Model, curriculum and validation of a training.

    With `start_ranks`, the initial weights may be the best ones. `token_ids` are those of all tokens that the
    curriculum reads; None trains all word embeddings.
    """

    model: Model
    curriculum: Curriculum
    validation: EarlyStoppingData | None = None
    start_ranks: bool = False
    token_ids: npt.NDArray[np.int64] | None = None


class TrainingJob(Job):
    """Base of training jobs, with everything that a worker needs."""

    reports_epochs: ClassVar[bool] = False
    """Whether validation metrics measure the run's quality, so that a pruner may end it after an epoch."""

    @property
    def loop(self) -> tuple[TrainingSettings, int]:
        """Optimiser and schedule, and the seed of all random draws; by default the fields of these names."""
        fields: Any = self
        return fields.training, fields.seed

    @property
    def loop_settings(self) -> TrainingSettings:
        """Optimiser and schedule."""
        return self.loop[0]

    @property
    def loop_seed(self) -> int:
        """The seed of all random draws."""
        return self.loop[1]

    @property
    def has_posterior(self) -> bool:
        """Whether a posterior is computed after training."""
        return False

    def build(self, device: torch.device) -> Training:
        """Build the model and its data; torch is seeded equally in every worker."""
        raise NotImplementedError

    def prepare(self, device: torch.device) -> Training:
        """Build the model, with the same initial weights in every worker, and the data."""
        torch.manual_seed(child_seed(self.loop_seed, "initial-weights"))
        training = self.build(device)
        if training.token_ids is not None:
            train_occurring_rows(training.model, training.token_ids)
        if self.loop_settings.gradient_checkpointing:
            for module in training.model.modules():
                if isinstance(module, BackboneEncoder):
                    module.recompute_layers()
        return training

    def add_posterior(self, checkpoint: Path, training: Training, engine: Engine) -> int:
        """Compute and save the posterior of a checkpoint's weights together with the other workers, but for what the
        head leaves to `complete_posterior`; return the number of matrices that needed more jitter than planned.
        """
        raise NotImplementedError


def run_training(
    job: TrainingJob,
    folder: Path,
    device: torch.device,
    make_engine: Callable[[Model, TrainingSettings], Engine],
    make_observer: Callable[[Model], Observer],
) -> None:
    """Train in one of the job's workers; together they write checkpoint/, curve.json and result.json to `folder`."""
    with reraise_oom("training", _memory_advice(job.loop_settings)):
        training = job.prepare(device)
        engine = make_engine(training.model, job.loop_settings)
        observer = make_observer(training.model)
        state = train(
            training.model, engine, training.curriculum, job.loop_settings, observer,
            seed=job.loop_seed, validation=training.validation, start_ranks=training.start_ranks,
        )  # fmt: skip
    num_jitters = _add_posterior(job, folder, training, engine) if job.has_posterior else 0
    if engine.rank == 0:
        write_json(folder / "curve.json", state.log)
        write_json(folder / "result.json", _result(training, engine, state, num_jitters))
        share(folder, "curve.json", "result.json")


def _add_posterior(job: TrainingJob, folder: Path, training: Training, engine: Engine) -> int:
    head: PosteriorHead = training.model.get_submodule("answer_head")  # pyright: ignore[reportAssignmentType]
    # Gathering also waits until rank 0 has written the best weights, which all workers read.
    num_jitters = sum(engine.gather(head.num_jitters))
    pull(folder / "checkpoint")
    with reraise_oom("computing the posterior", _SMALLER_POSTERIOR):
        num_jitters += job.add_posterior(folder / "checkpoint", training, engine)
    if engine.rank == 0:
        share(folder, f"checkpoint/{POSTERIOR}")
    return num_jitters


def _result(training: Training, engine: Engine, state: LoopState, num_jitters: int) -> dict[str, Any]:
    return {
        "best_epoch": state.best_epoch,
        "epochs": state.epoch,
        "updates": state.step,
        "examples": state.examples,
        "seconds": state.seconds,
        "threads": torch.get_num_threads(),
        "world_size": engine.world_size,
        "num_jitters": num_jitters,
        "device": str(engine.device),
    }


def best_epoch(folder: Path) -> int:
    """Return the epoch of a finished training whose weights were kept; 0 is the start."""
    return int(read_json(folder / "result.json")["best_epoch"])


def _memory_advice(training: TrainingSettings) -> str:
    return (
        f"Lower `max_tokens_per_batch` (it is {training.max_tokens_per_batch}), raise `gradient_accumulation` (now "
        f"{training.gradient_accumulation}), or set `gradient_checkpointing` to true. With several workers, "
        f"`zero_stage` 1 to 3 (it is {training.zero_stage}) shards the optimiser state among them."
    )


def run_task(task: PosteriorTask) -> Any:
    """Run a task in this process."""
    with reraise_oom("computing the posterior", _SMALLER_POSTERIOR):
        return task()


def run_here(tasks: Sequence[PosteriorTask]) -> list[Any]:
    """Run tasks sequentially in this process."""
    return [run_task(task) for task in tasks]


def complete_posterior(job: TrainingJob, folder: Path, run_tasks: RunTasks) -> None:
    """Run the posterior tasks of the checkpoint's head, if it has any, and save the completed posterior.

    A task's result depends on (checkpoint, seed, task) alone, not on the workers.
    """
    if not job.has_posterior:
        return
    checkpoint = folder / "checkpoint"
    head = load_ranker(checkpoint).posterior_head
    assert head is not None
    tasks = head.posterior_tasks(seed=child_seed(job.loop_seed, "posterior"))
    if not tasks:
        return
    head.take_results(run_tasks(tasks))
    save_posterior(checkpoint, head.posterior_state())
    result = read_json(folder / "result.json")
    write_json(folder / "result.json", {**result, "num_jitters": result["num_jitters"] + head.num_jitters})
