"""Training runs: Ray Train starts and places the workers, DeepSpeed updates the weights."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import override

from icalib.core.errors import Abandoned, IcalibError, StorageError
from icalib.core.events import Emit, EpochFinished, Message, Progress
from icalib.core.files import read_json, read_json_list, whole_file, write_json
from icalib.core.job import read_job
from icalib.core.stage_cache import RESUME, share
from icalib.core.storage import is_mirrored, local_path, location, names_in, opened, pull, push, remove
from icalib.distributed.session import room_for_workers, worker_environment
from icalib.heads.head import PosteriorTask
from icalib.models.checkpoint import POSTERIOR
from icalib.models.model import Model
from icalib.pipeline.executor import SPECTRAL_NORMS, norms_message
from icalib.pipeline.resources import Resources
from icalib.training.job import TrainingJob
from icalib.training.posterior import complete_posterior

_PROGRESS = "progress.json"
_EPOCHS = "epochs.json"  # points of the learning curve on validation so far
_STOP = "stop.json"  # the workers stop when it exists
_MAX_FAILURES = 3  # without a checkpoint between them


def train(job: TrainingJob, folder: Path, resources: Resources, stage: str, emit: Emit) -> None:
    """Run a training job and write checkpoint/ (the best weights), curve.json and result.json to `folder`.

    A folder with an unfinished training resumes from its last checkpoint.

    Raises:
        Abandoned: a consumer of the events stopped the training.
        IcalibError: the workers failed repeatedly, or with an error that only the user can fix.
    """
    remove(folder / _STOP)  # left by an earlier attempt
    with _ProgressWatcher(job, folder, stage, emit):
        _fit(job, folder, resources)
    pull(folder, leave_out=RESUME)
    complete_posterior(job, folder, partial(_run_tasks, folder, resources))
    _remove_resume_state(folder)
    world_size = read_json(folder / "result.json")["world_size"]
    if world_size < resources.num_workers:
        emit(
            Message(
                f"{stage}: nodes were lost, and {world_size} of {resources.num_workers} workers finished the training; "
                "its dropout masks differ from those of an uninterrupted training"
            )
        )


def _run_tasks(folder: Path, resources: Resources, tasks: Sequence[PosteriorTask]) -> list[Any]:
    """Run a posterior's tasks as Ray tasks."""
    import ray
    from ray.exceptions import RayError

    task = ray.remote(
        num_cpus=0 if resources.use_gpu else 1,
        num_gpus=resources.num_gpus,
        max_retries=3,
        scheduling_strategy="DEFAULT",  # not in a trial's placement group, which has no resources for tasks
    )(_run_task)
    shared = ray.put(tasks)  # data that the tasks have in common is stored once
    try:
        return ray.get([task.remote(shared, index) for index in range(len(tasks))])
    except RayError as error:
        raise IcalibError(
            f"the posterior's tasks in {folder} failed after 3 retries: {error}. Run the same command again: it "
            "resumes from the trained weights."
        ) from error


def _run_task(tasks: Sequence[PosteriorTask], index: int) -> Any:
    import torch

    torch.set_num_threads(1)
    return tasks[index].run()


def _fit(job: TrainingJob, folder: Path, resources: Resources) -> None:
    """Train; after the loss of workers or nodes, resume from the last checkpoint with those that are left.

    Ray Train's own retries would also repeat errors that only the user can fix, and never use fewer workers.
    """
    from ray.exceptions import RayError
    from ray.train import ControllerError, TrainingFailedError

    failures, checkpoint = 0, _last_checkpoint(folder)
    while True:
        try:
            _trainer(job, folder, resources).fit()
            return
        except (TrainingFailedError, RayError) as error:
            _raise_user_error(error)
            failures = failures + 1 if _last_checkpoint(folder) == checkpoint else 1
            checkpoint = _last_checkpoint(folder)
            room = room_for_workers(resources)
            if failures > _MAX_FAILURES:
                raise IcalibError(_failure_message(folder, resources, room, error)) from error
            if isinstance(error, ControllerError) and 0 < room < resources.num_workers:
                resources = replace(resources, num_workers=room)  # the lost workers were not replaced
        _note(folder, f"failed; resumes from the last checkpoint (workers: {resources.num_workers})")


def _trainer(job: TrainingJob, folder: Path, resources: Resources) -> Any:
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    filesystem, path = opened(folder)

    class Trainer(TorchTrainer):
        @override
        def _register_sigint_handler(self, controller: Any) -> None:
            """Do nothing: Ray's handler of Ctrl-C exits with code 0, and stays in place after the training."""

        @override
        def _create_default_callbacks(self) -> list[Any]:
            """Leave out what serves Ray Data, which isn't used: a process of its own, and an import in each worker."""
            callbacks: list[Any] = super()._create_default_callbacks()
            return [callback for callback in callbacks if type(callback).__name__ != "DatasetsCallback"]

    return Trainer(
        _worker,
        train_loop_config={
            "job": job.to_json(),
            "folder": location(folder),
            "threads": resources.cpus_per_worker,
        },
        scaling_config=ScalingConfig(
            num_workers=resources.num_workers,
            use_gpu=resources.use_gpu,
            resources_per_worker={
                "CPU": resources.cpus_per_worker,
                **({"GPU": resources.num_gpus} if resources.use_gpu else {}),
            },
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
            worker_runtime_env={"env_vars": worker_environment(resources)},
        ),
    )


def _last_checkpoint(folder: Path) -> str:
    return max((name for name in names_in(folder / RESUME) if name.startswith("checkpoint_")), default="")


def _raise_user_error(error: Exception) -> None:
    """Raise the user error behind a failure, if there is one: user errors are not retried."""
    for failure in getattr(error, "worker_failures", {}).values():
        if isinstance(failure, IcalibError):
            raise failure from error


def _failure_message(folder: Path, resources: Resources, room: int, error: Exception) -> str:
    resume = "Run the same command again to resume from the last checkpoint"
    if room < resources.num_workers:
        return (
            f"training in {folder} needs {resources.num_workers} workers, and the nodes that are left have room for "
            f"{room}. {resume} once there are enough nodes, or with fewer --workers."
        )
    return (
        f"training failed in {folder} after {_MAX_FAILURES} retries: {error}. {resume}; "
        "if memory ran out, lower `max_tokens_per_batch` or raise `gradient_accumulation`."
    )


def _note(folder: Path, note: str) -> None:
    """Show a note next to the progress until training continues."""
    path = folder / _PROGRESS
    write_json(path, {**(read_json(path) if path.is_file() else {"done": 0, "total": 1}), "note": note})


def _remove_resume_state(folder: Path) -> None:
    """Remove the optimiser states: they are three times as large as the weights, and not needed after training."""
    for name in (RESUME, _PROGRESS, _EPOCHS, _STOP):
        remove(folder / name)


class _ProgressWatcher:
    """A thread that emits what rank 0 writes, and makes rank 0 stop once a consumer has abandoned the run."""

    def __init__(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        self._job, self._folder, self._stage, self._emit = job, folder, stage, emit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._norms_emitted = False
        self._num_points = 0
        self._error: Exception | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _watch(self) -> None:
        try:
            while not self._over.wait(_interval(self._folder)):
                self._poll()
            self._poll()  # a short training may be over before the first interval
        except Exception as error:
            self._error = error

    def _poll(self) -> None:
        progress = read_json(path) if (path := self._pulled(_PROGRESS)) else None
        if progress is not None:
            self._emit(Progress(self._stage, progress["done"], progress["total"], progress["note"]))
        norms = read_json(path) if not self._norms_emitted and (path := self._pulled(SPECTRAL_NORMS)) else None
        if norms is not None:
            self._norms_emitted = True
            self._emit(norms_message(self._stage, norms))
        points = read_json_list(path) if (path := self._pulled(_EPOCHS)) else ()
        if self._job.reports_epochs and len(points) > self._num_points:
            try:
                self._emit(EpochFinished(self._stage, self._job.loop_settings.epochs, points))
            except Abandoned as error:
                with suppress(StorageError):  # repeated after the next epoch
                    write_json(self._folder / _STOP, {"reason": str(error)})
                    share(self._folder, _STOP)
            self._num_points = len(points)

    def _pulled(self, name: str) -> Path | None:
        """Return the path of a file that the workers have written; None if they haven't."""
        path = self._folder / name
        with suppress(StorageError):  # the workers report an unreachable store
            pull(path)
        return path if path.is_file() else None


def _interval(path: Path) -> float:
    """Return the seconds between two updates of the progress."""
    return 5.0 if is_mirrored(path) else 0.5


def _worker(config: dict[str, Any]) -> None:
    """Run one training worker."""
    import ray.train.torch
    import torch

    from icalib.distributed.engine import DeepSpeedEngine
    from icalib.training.job import run_training

    torch.set_num_threads(config["threads"])
    job, folder = read_job(config["job"]), local_path(config["folder"])
    job.pull()
    device = ray.train.torch.get_device()
    run_training(
        job,
        folder,
        device,
        lambda model, settings: DeepSpeedEngine(model, settings, device),
        lambda model: _Rank0(model, folder),
    )


class _Rank0:
    """Observer on rank 0, which writes progress and the best weights to the training's folder."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model, self._folder = model, folder
        self._last = 0.0

    def spectral_norms(self, norms: Mapping[str, float]) -> None:
        """Write the spectral norms before the first update."""
        write_json(self._folder / SPECTRAL_NORMS, dict(norms))
        share(self._folder, SPECTRAL_NORMS)

    def progress(self, done: float, total: float, note: str) -> None:
        """Write the progress, at most twice a second; in an object store less often, and failures are ignored.

        Raises:
            Abandoned: a consumer of the events has stopped the training.
        """
        now, path = time.monotonic(), self._folder / _PROGRESS
        if now - self._last > _interval(path):
            self._last = now
            with whole_file(path) as temporary:
                temporary.write_text(json.dumps({"done": done, "total": total, "note": note}))
            with suppress(StorageError):
                push(path)
                pull(self._folder / _STOP)
            if (self._folder / _STOP).is_file():
                reason = read_json(self._folder / _STOP)["reason"]
                raise Abandoned(f"the training in {self._folder} was abandoned: {reason}")

    def best(self, weights: dict[str, Any]) -> None:
        """Save the best weights so far, replacing the earlier ones."""
        remove(self._folder / "checkpoint" / POSTERIOR)  # computed for the earlier weights
        self._model.save(self._folder / "checkpoint", weights)
        share(self._folder, "checkpoint")

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """Write the learning curve so far, which the driver reads."""
        write_json(self._folder / _EPOCHS, list(points))
        with suppress(StorageError):
            push(self._folder / _EPOCHS)
