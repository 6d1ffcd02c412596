"""Work that is cut into shards: one shard a Ray task, on GPUs several, as many tasks at a time as there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from icalib.core.errors import IcalibError
from icalib.core.storage import pull
from icalib.distributed.session import Resources

OnProgress = Callable[[float, float, str], None]
_TASKS_OF_A_GPU, _MOST_SHARDS_OF_A_TASK = 4, 64


def run_shards(
    what: str,
    function: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    written: Sequence[Path],
    resources: Resources,
    on_progress: OnProgress,
    *,
    use_gpu: bool,
) -> None:
    """Run a function for every shard whose file isn't there yet.

    A worker that dies is replaced and its shard done again.

    Args:
        what: what is done to a shard, for messages, e.g. scoring.
        function: called in a worker with a shard's arguments; it writes the shard's file, whole or not at all, and
            shares it.
        arguments: of each shard.
        written: each shard's file.
        use_gpu: whether each task needs a GPU, or a CPU core.

    Raises:
        IcalibError: a shard failed three times, or for a reason that only a user can mend.
    """
    import ray

    task = ray.remote(
        num_cpus=0 if use_gpu else 1,
        num_gpus=1 if use_gpu else 0,
        max_retries=3,
        scheduling_strategy="DEFAULT",  # anywhere: a sweep's trial holds a placement without room for tasks
        retry_exceptions=[OSError],  # pyright: ignore[reportArgumentType]  # ray types it as bool only
    )(_one_by_one).options(name=function.__name__)
    missing = [number for number, path in enumerate(written) if not path.is_file()]
    size = _shards_of_a_task(len(missing), resources) if use_gpu else 1
    todo = [missing[start : start + size] for start in range(0, len(missing), size)]
    running: dict[Any, list[int]] = {}
    done = len(written) - len(missing)
    on_progress(done, len(written), "shards")
    while todo or running:
        while todo and len(running) < resources.num_scorers + 1:  # one more, so that no worker waits for work
            numbers = todo.pop(0)
            running[task.remote(function, [(arguments[n], written[n]) for n in numbers])] = numbers
        finished, _ = ray.wait(list(running), num_returns=1)
        for reference in finished:
            numbers = running.pop(reference)
            places = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
            _collect(reference, f"{what} shard {places} in {written[numbers[0]].parent}")
            done += len(numbers)
        on_progress(done, len(written), "shards")
    for folder in {path.parent for path in written}:
        pull(folder)


def _shards_of_a_task(missing: int, resources: Resources) -> int:
    """Ray ends a GPU task's process with the task, so that no memory stays behind, and each has a model to load."""
    return min(_MOST_SHARDS_OF_A_TASK, max(1, missing // (_TASKS_OF_A_GPU * resources.num_scorers)))


def _one_by_one(function: Callable[..., None], shards: Sequence[tuple[tuple[Any, ...], Path]]) -> None:
    for arguments, written in shards:
        if not written.is_file():  # else a process that died has left it
            function(*arguments)


def _collect(reference: Any, shard: str) -> None:
    import ray
    from ray.exceptions import RayError, RayTaskError

    kept = "Shards that are done are kept; the same command goes on with the others."
    try:
        ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, IcalibError) else IcalibError(f"{shard} failed: {cause}. {kept}") from error
    except RayError as error:
        raise IcalibError(f"{shard} failed after 3 retries: {error}. {kept}") from error
