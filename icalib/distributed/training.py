"""Training runs: Ray Train places workers, DeepSpeed moves the weights."""

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

from icalib.core.errors import Abandoned, IcalibError, StorageError
from icalib.core.events import Emit, EpochFinished, Message, Progress
from icalib.core.files import read_json, whole_file, write_json
from icalib.core.job import read_job
from icalib.core.stage_cache import RESUME, share
from icalib.core.storage import is_mirrored, local_path, location, names_in, opened, pull, push, remove
from icalib.distributed.session import room_for_workers
from icalib.heads.head import PosteriorTask
from icalib.models.checkpoint import POSTERIOR
from icalib.models.model import Model
from icalib.pipeline.executor import SPECTRAL_NORMS, Resources, norms_message
from icalib.training.job import TrainingJob
from icalib.training.posterior import complete_posterior

_PROGRESS = "progress.json"
_EPOCHS = "epochs.json"  # validation's points of the learning curve so far
_STOP = "stop.json"  # its presence asks the workers to give up
_MAX_FAILURES = 3  # without a checkpoint between them


def train(job: TrainingJob, folder: Path, resources: Resources, stage: str, emit: Emit) -> None:
    """Run a training job in `folder`: checkpoint/ (the best weights), curve.json, result.json.

    The same folder resumes from its last checkpoint.

    Raises:
        Abandoned: a consumer of the events ended it.
        IcalibError: the workers failed for good, or for a reason that only a user can remove.
    """
    remove(folder / _STOP)  # an earlier try's; whether to stop is decided again
    with _Watch(job, folder, stage, emit):
        _fit(job, folder, resources)
    pull(folder, leave_out=RESUME)
    complete_posterior(job, folder, partial(_run_tasks, folder, resources))
    _remove_resume_state(folder)
    world_size = read_json(folder / "result.json")["world_size"]
    if world_size < resources.num_workers:
        emit(
            Message(
                f"{stage}: {world_size} of {resources.num_workers} workers finished it after nodes were lost; its "
                "dropout masks are not those of an undisturbed training"
            )
        )


def _run_tasks(folder: Path, resources: Resources, tasks: Sequence[PosteriorTask]) -> list[Any]:
    """Run a posterior's tasks as Ray tasks."""
    import ray
    from ray.exceptions import RayError

    task = ray.remote(
        num_cpus=0 if resources.use_gpu else 1,
        num_gpus=1 if resources.use_gpu else 0,
        max_retries=3,
        scheduling_strategy="DEFAULT",  # anywhere: a sweep's trial holds a placement without room for tasks
    )(_run_task)
    shared = ray.put(tasks)  # what they have in common is stored once
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
    """Train; when workers or nodes die, resume from the last checkpoint with those that are left.

    Ray Train could retry by itself, but it also retries what only a user can fix, and never with fewer workers.
    """
    from ray.exceptions import RayError
    from ray.train import ControllerError, TrainingFailedError

    failures, reached = 0, _last_checkpoint(folder)
    while True:
        try:
            _trainer(job, folder, resources).fit()
            return
        except (TrainingFailedError, RayError) as error:
            _raise_user_error(error)
            failures = failures + 1 if _last_checkpoint(folder) == reached else 1
            reached = _last_checkpoint(folder)
            room = room_for_workers(resources)
            if failures > _MAX_FAILURES:
                raise IcalibError(_why_no_more(folder, resources, room, error)) from error
            lost = isinstance(error, ControllerError) and 0 < room < resources.num_workers
            if lost and job.loop_settings.zero_stage == 0:
                resources = replace(resources, num_workers=room)  # nothing replaced the lost workers
        _note(folder, f"failed; resumes from the last checkpoint (workers: {resources.num_workers})")


def _trainer(job: TrainingJob, folder: Path, resources: Resources) -> Any:
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    filesystem, path = opened(folder)
    return TorchTrainer(
        _worker,
        train_loop_config={
            "job": job.to_json(),
            "folder": location(folder),
            "threads": resources.cpus_per_worker,
        },
        scaling_config=ScalingConfig(
            num_workers=resources.num_workers,
            use_gpu=resources.use_gpu,
            resources_per_worker={"CPU": resources.cpus_per_worker, **({"GPU": 1} if resources.use_gpu else {})},
            # GPUs of one node are wired together; CPU workers want a node's memory bandwidth each for themselves.
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


def _last_checkpoint(folder: Path) -> str:
    return max((name for name in names_in(folder / RESUME) if name.startswith("checkpoint_")), default="")


def _raise_user_error(error: Exception) -> None:
    """User errors are not retried."""
    for failure in getattr(error, "worker_failures", {}).values():
        if isinstance(failure, IcalibError):
            raise failure from error


def _why_no_more(folder: Path, resources: Resources, room: int, error: Exception) -> str:
    kept = "The same command resumes from the last checkpoint"
    if room < resources.num_workers:
        return (
            f"training in {folder} needs {resources.num_workers} workers, and the nodes that are left have room for "
            f"{room}. {kept} when there are enough nodes; training with ZeRO stage 0 continues with fewer by itself."
        )
    return (
        f"training failed in {folder} after {_MAX_FAILURES} retries: {error}. {kept}; "
        "if memory ran out, lower `max_tokens_per_batch` or raise `gradient_accumulation`."
    )


def _note(folder: Path, note: str) -> None:
    """Show a note beside the progress until training continues."""
    path = folder / _PROGRESS
    write_json(path, {**(read_json(path) if path.is_file() else {"done": 0, "total": 1}), "note": note})


def _remove_resume_state(folder: Path) -> None:
    """Optimiser states are of no use once the best weights are written, and are three times their size."""
    for name in (RESUME, _PROGRESS, _EPOCHS, _STOP):
        remove(folder / name)


class _Watch:
    """Emits what rank 0 writes, until the block ends, and asks rank 0 to stop once a consumer has abandoned the run."""

    def __init__(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        self._job, self._folder, self._stage, self._emit = job, folder, stage, emit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._knows_norms = False
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
            while not self._over.wait(_period(self._folder)):
                self._look()
            self._look()  # a short training may be over before the first look
        except Exception as error:
            self._error = error

    def _look(self) -> None:
        progress = self._news(_PROGRESS)
        if progress is not None:
            self._emit(Progress(self._stage, progress["done"], progress["total"], progress["note"]))
        norms = None if self._knows_norms else self._news(SPECTRAL_NORMS)
        if norms is not None:
            self._knows_norms = True
            self._emit(norms_message(self._stage, norms))
        points = self._news(_EPOCHS) or ()
        if self._job.reports_epochs and len(points) > self._num_points:
            try:
                self._emit(EpochFinished(self._stage, self._job.loop_settings.epochs, points))
            except Abandoned as error:
                with suppress(StorageError):  # the next epoch gives another chance
                    write_json(self._folder / _STOP, {"reason": str(error)})
                    share(self._folder, _STOP)
            self._num_points = len(points)

    def _news(self, name: str) -> Any:
        path = self._folder / name
        with suppress(StorageError):  # whoever needs the store says so
            pull(path)
        return read_json(path) if path.is_file() else None


def _period(path: Path) -> float:
    """Seconds between two looks at the progress."""
    return 5.0 if is_mirrored(path) else 0.5


def _worker(config: dict[str, Any]) -> None:
    """One training worker."""
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
    """Writes progress and the best weights beside the run."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model, self._folder = model, folder
        self._last = 0.0

    def spectral_norms(self, norms: Mapping[str, float]) -> None:
        """Written before the first update."""
        write_json(self._folder / SPECTRAL_NORMS, dict(norms))
        share(self._folder, SPECTRAL_NORMS)

    def progress(self, done: float, total: float, note: str) -> None:
        """At most twice a second; less often in an object store, where it may fail too.

        Raises:
            Abandoned: a consumer of the events has ended the run.
        """
        now, path = time.monotonic(), self._folder / _PROGRESS
        if now - self._last > _period(path):
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
        """Keep these weights; the earlier ones are replaced whole."""
        remove(self._folder / "checkpoint" / POSTERIOR)  # it belongs to the earlier ones
        self._model.save(self._folder / "checkpoint", weights)
        share(self._folder, "checkpoint")

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """Let those who watch see how good the model is by now."""
        write_json(self._folder / _EPOCHS, list(points))
        with suppress(StorageError):
            push(self._folder / _EPOCHS)
