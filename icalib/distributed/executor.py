"""The default executor: training by Ray Train and DeepSpeed; shards as Ray tasks, several per task on GPUs."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from traceback import clear_frames
from typing import Any

import torch

from icalib.core.errors import IcalibError
from icalib.core.events import Emit, Progress
from icalib.core.job import ShardedJob, keep_nothing, read_job
from icalib.core.stage_cache import share
from icalib.core.storage import is_mirrored, local_path, location, names_in, pull
from icalib.distributed.session import UNUSABLE_GPU_CURE, component_of_this_node, is_one_cpu_node, max_calls
from icalib.distributed.training import train
from icalib.models.memory import reraise_oom
from icalib.stages.executor import LocalExecutor
from icalib.stages.resources import Resources
from icalib.training.job import TrainingJob


class RayExecutor:
    """Executor on the Ray cluster that this process has joined (see `icalib.distributed.session`)."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Train with Ray Train and DeepSpeed."""
        train(job, folder, self.resources, stage, emit)

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Compute shards as Ray tasks; a quick job in this process, while a worker imports what comes next needs."""
        if job.is_quick:
            # Not on GPUs, for whose tasks Ray has other processes.
            if is_one_cpu_node(self.resources):
                import ray

                ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="DEFAULT")(_preload).remote()
            LocalExecutor(torch.device("cpu")).map(job, folder, stage, emit)
            return
        map_shards(job, folder, self.resources, stage, emit)

    def split(self, number: int) -> tuple[RayExecutor, int]:
        """Return an executor for each of `number` concurrent trainings, and how many of them run at a time."""
        resources, room = self.resources.shared_by(number)
        return RayExecutor(resources), room


def _preload() -> None:
    from icalib.distributed.engine import load_deepspeed

    load_deepspeed()  # before transformers imports it with its start-up output
    for module in ("ray.train.torch", "transformers.modeling_utils"):
        import_module(module)


_MAX_SHARDS_PER_TASK = 64  # of a task on a GPU
_SEEN_WITHIN_S = 90.0  # NFS caches a folder for up to a minute


def map_shards(job: ShardedJob, folder: Path, resources: Resources, stage: str, emit: Emit) -> None:
    """Compute every shard of a job whose file is missing, on other processes if one dies.

    An IcalibError says that a shard failed three times, or what only the user can fix.
    """
    import ray

    shards, fields, use_gpu = job.shards(), job.to_json(), resources.use_gpu and job.uses_models
    task = ray.remote(
        num_cpus=0 if use_gpu else 1,
        num_gpus=resources.num_gpus if use_gpu else 0,
        max_calls=max_calls(use_gpu),
        max_retries=3,
        scheduling_strategy="DEFAULT",  # not in a trial's placement group, which has no resources for tasks
        retry_exceptions=[OSError],  # pyright: ignore[reportArgumentType]  # ray types it as bool only
    )(_compute_shards).options(name=type(job).__name__)
    missing = _missing(job, folder, len(shards))
    size = _shards_per_task(len(missing), resources) if use_gpu else 1
    todo = [missing[start : start + size] for start in range(0, len(missing), size)]
    # On CPUs one more, so that no worker waits for its next. Another trial may wait for one more GPU.
    at_once = resources.num_scorers if use_gpu else (resources.num_cpu_tasks or resources.num_scorers) + 1
    running: dict[Any, list[int]] = {}
    done = len(shards) - len(missing)
    emit(Progress(stage, done, len(shards), "shards"))
    try:
        while todo or running:
            while todo and len(running) < at_once:
                indices = todo.pop(0)
                running[task.remote(fields, [(n, shards[n]) for n in indices], location(folder))] = indices
            finished, _ = ray.wait(list(running), num_returns=1)
            for reference in finished:
                indices = running.pop(reference)
                span = f"{indices[0]}" if len(indices) == 1 else f"{indices[0]} to {indices[-1]}"
                _collect(reference, f"{job.verb} shard {span} in {folder}")
                done += len(indices)
            emit(Progress(stage, done, len(shards), "shards"))
    finally:
        for reference in running:  # after an error, when the results of the others aren't wanted
            ray.cancel(reference)
    _wait_for_shards(job, folder, len(shards))
    job.finish(folder)


def _missing(job: ShardedJob, folder: Path, number: int) -> list[int]:
    """Return the shards whose file isn't seen here."""
    # Listed: asking NFS for each file that isn't there yet would hide it for a while once another node has written it.
    written = set(folder.rglob("*"))
    return [index for index in range(number) if job.shard_path(folder, index) not in written]


def _wait_for_shards(job: ShardedJob, folder: Path, number: int) -> None:
    """Wait until the shards of all nodes are seen here, which takes NFS a while; IcalibError if one never is."""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while True:
        pull(folder)
        missing = _missing(job, folder, number)
        if not missing:
            return
        if time.monotonic() > deadline:
            example = job.shard_path(folder, missing[0]).name
            raise IcalibError(
                f"{job.verb}: {len(missing)} of {number} files were written on other nodes and can't be seen in "
                f"{location(folder)}, e.g. {example}. All nodes need one shared folder, or a store such as s3://, for "
                "--runs; `icalib doctor` checks it."
            )
        time.sleep(1)


def _shards_per_task(num_missing: int, resources: Resources) -> int:
    """Return the shards of a GPU task: as few tasks as keep all GPUs busy, since each has to load the model."""
    return min(_MAX_SHARDS_PER_TASK, max(1, -(-num_missing // resources.num_scorers)))


def _compute_shards(fields: str, shards: Sequence[tuple[int, Any]], folder: str) -> None:
    with component_of_this_node():
        job = read_job(fields)
    target = local_path(folder)
    torch.set_num_threads(1)
    job.pull()
    device = _device(job)
    try:
        for index, shard in shards:
            path = job.shard_path(target, index)
            if _is_shared(path):  # by a process that died later
                continue
            with reraise_oom(job.verb, job.memory_advice):
                job.compute_shard(index, shard, target, device)
            files = [file for file in job.shared_files(target, index) if file.exists()]
            share(target, *(str(file.relative_to(target)) for file in files))
    except Exception as error:
        clear_frames(error.__traceback__)  # they hold models and activations
        if error.__cause__ is not None:
            clear_frames(error.__cause__.__traceback__)
        raise
    finally:
        if device.type == "cuda":  # a training may be next on this GPU
            keep_nothing()
            torch.cuda.empty_cache()


def _is_shared(path: Path) -> bool:
    """Return whether all nodes see a shard; a mirror may have one whose upload failed, or of an attempt before."""
    return path.is_file() and (not is_mirrored(path) or path.name in names_in(path.parent))


def _device(job: ShardedJob) -> torch.device:
    import ray

    if not job.uses_models:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if ray.is_initialized() and ray.get_gpu_ids():
        raise IcalibError(
            f"Ray counts a GPU on {platform.node()}, which torch {torch.__version__} there can't use. "
            f"{UNUSABLE_GPU_CURE}"
        )
    return torch.device("cpu")


def _collect(reference: Any, shard: str) -> None:
    import ray
    from ray.exceptions import RayError, RayTaskError

    kept = "Finished shards are kept; run the same command again to compute the others."
    try:
        ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, IcalibError) else IcalibError(f"{shard} failed: {cause}. {kept}") from error
    except RayError as error:
        raise IcalibError(f"{shard} failed after 3 retries: {error}. {kept}") from error
