"""Completing a posterior with the tasks that its head splits the computation into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from icalib.core.files import read_json, write_json
from icalib.core.seeding import child_seed
from icalib.heads.head import PosteriorTask
from icalib.models.checkpoint import save_posterior
from icalib.models.ranker import load_ranker
from icalib.training.job import TrainingJob

RunTasks = Callable[[Sequence[PosteriorTask]], Sequence[Any]]
"""Runs tasks in any processes and any order, and returns their results in the order of the tasks."""


def run_here(tasks: Sequence[PosteriorTask]) -> list[Any]:
    """Run tasks sequentially in this process."""
    return [task() for task in tasks]


def complete_posterior(job: TrainingJob, folder: Path, run_tasks: RunTasks) -> None:
    """Run the posterior tasks of the checkpoint's head, if it has any, and save the completed posterior.

    A task's result is a function of (checkpoint, seed, task), independent of the worker that runs it and of their
    number.
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
