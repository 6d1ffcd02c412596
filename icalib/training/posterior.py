"""Completing a posterior by the tasks that its head splits it into, wherever they run."""

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
"""Runs tasks, in any processes and any order, and returns their results in the tasks' order."""


def run_here(tasks: Sequence[PosteriorTask]) -> list[Any]:
    """Run tasks one after the other in this process."""
    return [task.run() for task in tasks]


def complete_posterior(job: TrainingJob, folder: Path, run_tasks: RunTasks) -> None:
    """Run the tasks that training left, if its head has any, and keep the completed posterior in the checkpoint.

    A task's result depends on (checkpoint, seed, task) alone: not on which worker ran it, nor on how many there are.
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
