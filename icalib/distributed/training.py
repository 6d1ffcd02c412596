"""Training runs: Ray Train starts and places the workers, DeepSpeed updates the weights."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from icalib.core.errors import IcalibError
from icalib.core.events import Emit, Message
from icalib.core.files import read_json
from icalib.core.job import read_job
from icalib.core.stage_cache import RESUME
from icalib.core.storage import local_path, location, opened, pull, remove
from icalib.distributed.checkpoints import (
    Checkpoints,
    OwnCheckpoints,
    RayCheckpoints,
    has_ray_checkpoints,
    last_name,
    remove_unlisted,
)
from icalib.distributed.progress import PROGRESS, STOP, ProgressWatcher, WorkerReporter, note_progress
from icalib.distributed.session import (
    UNUSABLE_GPU_CURE,
    component_of_this_node,
    is_one_cpu_node,
    max_calls,
    room_for_workers,
)
from icalib.heads.head import PosteriorTask
from icalib.models.model import Model
from icalib.stages.resources import Resources
from icalib.training.job import TrainingJob, complete_posterior, run_task
from icalib.training.settings import TrainingSettings

_MAX_FAILURES = 3  # without a checkpoint between them
_ENDED_S = 2.0  # after which an actor without references has ended
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}  # DeepSpeed reads them


def train(job: TrainingJob, folder: Path, resources: Resources, stage: str, emit: Emit) -> None:
    """Run a training job and write checkpoint/ (the best weights), curve.json and result.json to `folder`.

    An unfinished training resumes from its last checkpoint. Abandoned says that a consumer of the events stopped it,
    another IcalibError that workers failed repeatedly, or what only the user can fix.
    """
    remove(folder / STOP)  # left by an earlier attempt
    with ProgressWatcher(job, folder, stage, emit):
        _fit(job, folder, resources)
    pull(folder, leave_out=RESUME)
    complete_posterior(job, folder, partial(_run_tasks, folder, resources))
    for name in (RESUME, PROGRESS, STOP):  # optimiser states are three times as large as the weights
        remove(folder / name)
    world_size = read_json(folder / "result.json")["world_size"]
    if world_size < resources.num_workers:
        lost = f"{stage}: nodes were lost, and {world_size} of {resources.num_workers} workers finished the training; "
        emit(Message(lost + "its dropout masks differ from those of an uninterrupted training"))


def _run_tasks(folder: Path, resources: Resources, tasks: Sequence[PosteriorTask]) -> list[Any]:
    import ray
    from ray.exceptions import RayError

    task = ray.remote(
        num_cpus=0 if resources.use_gpu else 1,
        num_gpus=resources.num_gpus,
        max_calls=max_calls(resources.use_gpu),
        max_retries=3,
        scheduling_strategy="DEFAULT",  # not in a trial's placement group, which has no resources for tasks
    )(_run_task)
    shared = ray.put(tasks)  # data that the tasks have in common is stored once
    try:
        return ray.get([task.remote(shared, index) for index in range(len(tasks))])
    except RayError as error:
        _raise_user_error(error)
        raise IcalibError(
            f"the posterior's tasks in {folder} failed: {getattr(error, 'cause', error)}. Run the same command again: "
            "it resumes from the last checkpoint."
        ) from error


def _run_task(tasks: Sequence[PosteriorTask], index: int) -> Any:
    import torch

    torch.set_num_threads(1)
    try:
        return run_task(tasks[index])
    finally:
        torch.cuda.empty_cache()  # a training may be next on this GPU; does nothing without one


def _run_alone(job: TrainingJob, folder: Path, resources: Resources) -> None:
    import ray

    task = ray.remote(
        num_cpus=resources.cpus_per_worker,
        scheduling_strategy="DEFAULT",  # not in a trial's placement group, which has no resources for tasks
        max_retries=0,
    )(_work_alone)
    ray.get(task.remote(_loop_config(job, folder, resources)))


def _loop_config(job: TrainingJob, folder: Path, resources: Resources) -> dict[str, Any]:
    return {"job": job.to_json(), "folder": location(folder), "threads": resources.cpus_per_worker}


def _fit(job: TrainingJob, folder: Path, resources: Resources) -> None:
    """Train; after the loss of workers or nodes, resume from the last checkpoint with those that are left.

    Ray Train's retries would repeat what only the user can fix, and never use fewer workers. ZeRO's shards need as
    many.
    """
    from ray.exceptions import RayError
    from ray.train import ControllerError, TrainingFailedError

    failures, checkpoint = 0, last_name(folder)
    while True:
        try:
            _attempt(job, folder, resources)
            return
        except (TrainingFailedError, RayError) as error:
            _raise_user_error(error)
            _refuse_unusable_gpus(error)
            room = room_for_workers(resources)
            if room >= resources.num_workers and _found_no_place(error):
                note = "waits for CPUs or GPUs that other work uses"
            else:
                failures = failures + 1 if last_name(folder) == checkpoint else 1
                checkpoint = last_name(folder)
                if failures > _MAX_FAILURES:
                    raise IcalibError(_failure_message(folder, resources, room, error)) from error
                is_sharded = job.loop_settings.zero_stage > 0
                if isinstance(error, ControllerError) and 0 < room < resources.num_workers and not is_sharded:
                    resources = replace(resources, num_workers=room)  # the lost workers were not replaced
                note = f"failed; resumes from the last checkpoint (workers: {resources.num_workers})"
        note_progress(folder, note)
        _free_what_controllers_hold()


def _free_what_controllers_hold() -> None:
    """Remove the placement groups of Ray Train's dead controllers, which keep CPUs and GPUs until this process ends.

    Ray Train does so itself only where it finds Ray's dashboard, which a local Ray doesn't have.
    """
    import ray
    from ray._private.state import state
    from ray.core.generated import gcs_pb2
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    gc.collect()  # the error of a controller refers to it, and it ends with the last reference
    time.sleep(_ENDED_S)
    table: Any = getattr(gcs_pb2, "PlacementGroupTableData")  # noqa: B009  # generated, without types
    own = ray.get_runtime_context().get_job_id()
    accessor = state._connect_and_get_accessor()  # pyright: ignore[reportPrivateUsage]  # no public way to the creator
    for entry in accessor.get_placement_group_table():
        group = table.FromString(entry)
        by_actor = group.creator_job_id.hex() == own and not ray.ActorID(group.creator_actor_id).is_nil()
        if by_actor and group.creator_actor_dead and group.state != table.REMOVED:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


def _attempt(job: TrainingJob, folder: Path, resources: Resources) -> None:
    """Train once; one worker on the cores of one machine does without the processes that Ray Train starts."""
    remove_unlisted(folder)
    is_alone = resources.num_workers == 1 and is_one_cpu_node(resources)
    if is_alone and not has_ray_checkpoints(folder):
        _run_alone(job, folder, resources)
    else:
        _run_by_ray_train(job, folder, resources)


def _run_by_ray_train(job: TrainingJob, folder: Path, resources: Resources) -> None:
    """Train by Ray Train, in a thread: in the main one it sets a handler of Ctrl-C, which exits with code 0."""
    trainer, result = _trainer(job, folder, resources), Future[Any]()

    def fit() -> None:
        try:
            result.set_result(trainer.fit())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=fit, daemon=True).start()
    result.result()


def _trainer(job: TrainingJob, folder: Path, resources: Resources) -> Any:
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    filesystem, path = opened(folder)
    return TorchTrainer(
        _worker_of_several,
        train_loop_config=_loop_config(job, folder, resources),
        scaling_config=ScalingConfig(
            num_workers=resources.num_workers,
            use_gpu=resources.use_gpu,
            resources_per_worker={"CPU": resources.cpus_per_worker}
            | ({"GPU": resources.num_gpus} if resources.use_gpu else {}),
            # GPUs of one node have fast links to each other; CPU workers compete for a node's memory bandwidth.
            placement_strategy="PACK" if resources.use_gpu else "SPREAD",
        ),
        run_config=RunConfig(
            name=RESUME,
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )


def _raise_user_error(error: Exception) -> None:
    """Raise the user error behind a failure, if there is one: user errors are not retried."""
    for failure in (getattr(error, "cause", None), *getattr(error, "worker_failures", {}).values()):
        if isinstance(failure, IcalibError):
            raise failure from error


def _refuse_unusable_gpus(error: Exception) -> None:
    """Raise an error for GPUs that torch can't use, which Ray Train finds when it joins its workers by NCCL."""
    found = (error, getattr(error, "cause", ""), *getattr(error, "worker_failures", {}).values())
    lines = (line for one in found for line in str(one).splitlines())
    if sign := next((line for line in lines if "NCCL built in" in line or "no GPUs found" in line), None):
        raise IcalibError(
            f"Ray counts GPUs that torch on their nodes can't use ({sign.strip()}). {UNUSABLE_GPU_CURE} "
            "`icalib doctor` shows each node's versions."
        ) from error


def _found_no_place(error: Exception) -> bool:
    """Return whether Ray Train gave up waiting for the resources of its workers, after a minute."""
    return type(getattr(error, "controller_failure", None)).__name__ == "WorkerGroupStartupTimeoutError"


def _failure_message(folder: Path, resources: Resources, room: int, error: Exception) -> str:
    resume = "Run the same command again to resume from the last checkpoint"
    if room < resources.num_workers:
        return (
            f"training in {folder} needs {resources.num_workers} workers, and the nodes that are left have room for "
            f"{room}. {resume} once there are enough nodes, or with fewer --workers."
        )
    return (
        f"training failed in {folder} after {_MAX_FAILURES} retries: {getattr(error, 'cause', error)}. {resume}; "
        "if memory ran out, lower `max_tokens_per_batch` or raise `gradient_accumulation`."
    )


def _work_alone(config: dict[str, Any]) -> None:
    """Run the only training worker in this process, by Ray Train's local mode."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    os.environ.update(_ALONE)
    TorchTrainer(_worker_alone, train_loop_config=config, scaling_config=ScalingConfig(num_workers=0)).fit()


def _worker_alone(config: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    from icalib.distributed.engine import load_deepspeed

    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # by default it opens a port to all
    linear = torch.nn.functional.linear
    try:
        _worker(config, OwnCheckpoints(local_path(config["folder"])))
    finally:
        torch.nn.functional.linear = linear  # ZeRO 3's own would stay, and round what this process computes next
        comm = load_deepspeed().comm  # DeepSpeed would keep the group for the process's next training
        (comm if comm.is_initialized() else dist).destroy_process_group()
        gc.collect()  # of DeepSpeed's cycles, or this process keeps models with their optimiser states


def _worker_of_several(config: dict[str, Any]) -> None:
    _worker(config, RayCheckpoints(local_path(config["folder"])))


def _worker(config: dict[str, Any], checkpoints: Checkpoints) -> None:
    import ray.train.torch
    import torch

    from icalib.distributed.engine import DeepSpeedEngine
    from icalib.training.job import run_training

    torch.set_num_threads(config["threads"])
    with component_of_this_node():
        job = read_job(config["job"])
    folder, device = local_path(config["folder"]), ray.train.torch.get_device()
    job.pull()

    with ExitStack() as stack:

        def make_engine(model: Model, settings: TrainingSettings) -> DeepSpeedEngine:
            return stack.enter_context(closing(DeepSpeedEngine(model, settings, device, checkpoints)))

        run_training(job, folder, device, make_engine, lambda model: WorkerReporter(model, folder))
