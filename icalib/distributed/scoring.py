"""Scoring pools: one shard a Ray task, as many at a time as there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from icalib.core.errors import IcalibError
from icalib.distributed.session import Resources
from icalib.regimes.jobs import shard_path, shard_rows
from icalib.regimes.workbench import ScoreJob


def score(job: ScoreJob, folder: Path, resources: Resources, on_progress: Callable[[float, float, str], None]) -> None:
    """Score every shard that isn't there yet.

    A worker that dies is replaced and its shard scored again. What a shard holds depends on (checkpoint, shard,
    seed) alone, so neither the number of workers nor a death shows in the result.

    Raises:
        IcalibError: a shard failed three times.
    """
    import ray

    shards = shard_rows(job)
    todo = [number for number in range(len(shards)) if not shard_path(folder, number).is_file()]
    task = ray.remote(
        num_cpus=0 if resources.use_gpu else 1,
        num_gpus=1 if resources.use_gpu else 0,
        max_retries=3,
        scheduling_strategy="DEFAULT",  # anywhere: a sweep's trial holds a placement without room for tasks
        retry_exceptions=[OSError],  # pyright: ignore[reportArgumentType]  # ray types it as bool only
    )(_score_shard)
    fields = job.model_dump_json()
    running: dict[Any, int] = {}
    done = len(shards) - len(todo)
    on_progress(done, len(shards), "shards")
    while todo or running:
        while todo and len(running) < resources.num_scorers + 1:  # one more, so that no worker waits for work
            number = todo.pop(0)
            running[task.remote(fields, number, shards[number].tolist(), str(folder))] = number
        finished, _ = ray.wait(list(running), num_returns=1)
        _collect(finished, running, folder)
        done += len(finished)
        on_progress(done, len(shards), "shards")


def _collect(finished: Sequence[Any], running: dict[Any, int], folder: Path) -> None:
    import ray
    from ray.exceptions import RayError, RayTaskError

    for reference in finished:
        number = running.pop(reference)
        try:
            ray.get(reference)
        except RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, IcalibError) else IcalibError(
                f"scoring shard {number} in {folder} failed: {cause}. Shards that are done are kept; the same command "
                "goes on with the others."
            ) from error  # fmt: skip
        except RayError as error:
            raise IcalibError(
                f"scoring shard {number} in {folder} failed after 3 retries: {error}. Shards that are done are kept; "
                "the same command goes on with the others."
            ) from error


def _score_shard(job: str, number: int, rows: Sequence[int], folder: str) -> None:
    import torch

    from icalib.regimes.jobs import score_shard

    torch.set_num_threads(1)  # as many processes as cores; and results don't depend on the number of threads
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    score_shard(ScoreJob.model_validate_json(job), number, rows, Path(folder), device)
