"""Training runs: Ray Train places workers, DeepSpeed moves the weights."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from icalib.core.errors import Abandoned, IcalibError, StorageError
from icalib.core.files import read_json, whole_file, write_json
from icalib.core.paths import pull_all
from icalib.core.stage_cache import RESUME, share
from icalib.core.storage import is_mirrored, local_path, location, names_in, opened, pull, push, remove
from icalib.distributed.chains import complete_posterior
from icalib.distributed.memory import explained_shortage
from icalib.distributed.session import Resources, room_for_workers
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.models.checkpoint import POSTERIOR
from icalib.models.model import Model
from icalib.training.job import AnyTrainJob, TrainJob, read_train_job

_PROGRESS = "progress.json"
_EPOCHS = "epochs.json"  # validation's points of the learning curve so far
_STOP = "stop.json"  # its presence asks the workers to give up
SPECTRAL_NORMS = "spectral_norms.json"
"""Norms of the bounded layers before training, by layer; only where the encoder's weights are bounded."""
_SMALLER_POSTERIOR = (
    "Its matrix grows with the square of `head.num_features` (random features) or `head.support.size` (Pólya-Gamma): "
    "lower that, or take a machine with more memory."
)
_MAX_FAILURES = 3  # without a checkpoint between them


class Watcher:
    """Hears of a training while it is under way, in a thread of its own; this one lets it pass."""

    def progress(self, done: float, total: float, note: str) -> None:
        """So many updates are done."""

    def spectral_norms(self, norms: dict[str, float]) -> None:
        """Norms of the bounded layers, told once, before the first update."""

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """All that validation has given so far, told after each epoch; may raise `Abandoned` to end the training."""


_NOBODY = Watcher()


def train(job: AnyTrainJob, folder: Path, resources: Resources, watcher: Watcher = _NOBODY) -> None:
    """Run a training job in `folder`: checkpoint/ (the best weights), curve.json, result.json.

    The same folder resumes from its last checkpoint.

    Raises:
        Abandoned: the watcher gave it up.
        IcalibError: the workers failed for good, or said what only a user can mend.
    """
    remove(folder / _STOP)  # an earlier try's; whoever watches now may think otherwise
    with _Watch(folder, watcher):
        _fit(job, folder, resources)
    pull(folder, leave_out=RESUME)
    if isinstance(job, TrainJob) and isinstance(job.ranker.head, PolyaGammaHead.Config):
        num_jitters = complete_posterior(job, folder / "checkpoint", resources)
        result = read_json(folder / "result.json")
        write_json(folder / "result.json", {**result, "num_jitters": result["num_jitters"] + num_jitters})
    _remove_resume_state(folder)


def _fit(job: AnyTrainJob, folder: Path, resources: Resources) -> None:
    """Train; when workers or nodes die, go on from the last checkpoint with those that are left.

    Ray Train could retry by itself, but it retries what only a user can mend too, and never with fewer workers.
    """
    from ray.exceptions import RayError
    from ray.train import ControllerError, TrainingFailedError

    failures, reached = 0, _last_checkpoint(folder)
    while True:
        try:
            _trainer(job, folder, resources).fit()
            return
        except (TrainingFailedError, RayError) as error:
            _raise_what_a_worker_said(error)
            failures = failures + 1 if _last_checkpoint(folder) == reached else 1
            reached = _last_checkpoint(folder)
            room = room_for_workers(resources)
            if failures > _MAX_FAILURES:
                raise IcalibError(_why_no_more(folder, resources, room, error)) from error
            if isinstance(error, ControllerError) and job.training.zero_stage == 0 and 0 < room < resources.num_workers:
                resources = replace(resources, num_workers=room)  # nobody came in the lost workers' place
        _tell(folder, f"failed; goes on from the last checkpoint (workers: {resources.num_workers})")


def _trainer(job: AnyTrainJob, folder: Path, resources: Resources) -> Any:
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    filesystem, path = opened(folder)
    return TorchTrainer(
        _worker,
        train_loop_config={
            "job": job.model_dump_json(),
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


def _raise_what_a_worker_said(error: Exception) -> None:
    """Retrying can't mend what a user must."""
    for failure in getattr(error, "worker_failures", {}).values():
        if isinstance(failure, IcalibError):
            raise failure from error


def _why_no_more(folder: Path, resources: Resources, room: int, error: Exception) -> str:
    kept = "The same command goes on from the last checkpoint"
    if room < resources.num_workers:
        return (
            f"training in {folder} needs {resources.num_workers} workers, and the nodes that are left have room for "
            f"{room}. {kept} when there are nodes enough; training with ZeRO stage 0 goes on with fewer by itself."
        )
    return (
        f"training failed in {folder} after {_MAX_FAILURES} retries: {error}. {kept}; "
        "if memory ran out, lower `max_tokens_per_batch` or raise `gradient_accumulation`."
    )


def _tell(folder: Path, note: str) -> None:
    """Whoever watches the progress sees the note until training moves on."""
    path = folder / _PROGRESS
    write_json(path, {**(read_json(path) if path.is_file() else {"done": 0, "total": 1}), "note": note})


def _remove_resume_state(folder: Path) -> None:
    """Optimiser states are of no use once the best weights are written, and are three times their size."""
    for name in (RESUME, _PROGRESS, _EPOCHS, _STOP):
        remove(folder / name)


class _Watch:
    """Tells a watcher what rank 0 writes, until the block ends; and rank 0 when the watcher has given up."""

    def __init__(self, folder: Path, watcher: Watcher) -> None:
        self._folder, self._watcher = folder, watcher
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._knows_norms = False
        self._num_points = 0
        self._fault: Exception | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self._fault is not None:
            raise self._fault

    def _watch(self) -> None:
        try:
            while not self._over.wait(_period(self._folder)):
                self._look()
            self._look()  # a short training may be over before the first look
        except Exception as error:
            self._fault = error

    def _look(self) -> None:
        progress = self._news(_PROGRESS)
        if progress is not None:
            self._watcher.progress(progress["done"], progress["total"], progress["note"])
        norms = None if self._knows_norms else self._news(SPECTRAL_NORMS)
        if norms is not None:
            self._knows_norms = True
            self._watcher.spectral_norms(norms)
        points = self._news(_EPOCHS) or ()
        if len(points) > self._num_points:
            try:
                self._watcher.validated(points)
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
    import ray.train
    import ray.train.torch
    import torch

    from icalib.distributed.engine import DeepSpeedEngine
    from icalib.models.ranker import Ranker
    from icalib.training.job import add_posterior, prepare_training
    from icalib.training.loop import train as train_loop

    torch.set_num_threads(config["threads"])
    job, folder = read_train_job(config["job"]), local_path(config["folder"])
    pull_all(job)
    device = ray.train.torch.get_device()
    with explained_shortage("training", _less_memory(job)):
        training = prepare_training(job, device)
        norms = training.model.spectral_norms
        if norms and ray.train.get_context().get_world_rank() == 0:
            write_json(folder / SPECTRAL_NORMS, dict(norms))
            share(folder, SPECTRAL_NORMS)
        engine = DeepSpeedEngine(training.model, job.training, device)
        observer = _Rank0(training.model, folder)
        state = train_loop(
            training.model,
            engine,
            training.curriculum,
            job.training,
            observer,
            seed=job.seed,
            validation=training.validation,
        )
        num_jitters = 0
        if isinstance(job, TrainJob) and job.ranker.head.has_posterior:
            assert isinstance(training.model, Ranker)
            assert training.model.posterior_head is not None
            # gathering waits until the best weights lie there for all to read
            num_jitters = sum(engine.gather(training.model.posterior_head.num_jitters))
            pull(folder / "checkpoint")
            with explained_shortage("computing the posterior", _SMALLER_POSTERIOR):
                num_jitters += add_posterior(
                    folder / "checkpoint", training, job, device,
                    rank=engine.rank, world_size=engine.world_size, gather=engine.gather, with_chains=False,
                )  # fmt: skip
            if engine.rank == 0:
                share(folder, f"checkpoint/{POSTERIOR}")
    if engine.rank == 0:
        write_json(folder / "curve.json", state.log)
        write_json(
            folder / "result.json",
            {
                "figure": state.best if training.validation and job.kind != "post_training" else None,
                "best_epoch": state.best_epoch,
                "epochs": state.epoch,
                "updates": state.step,
                "examples": state.examples,
                "seconds": state.seconds,
                "threads": torch.get_num_threads(),
                "world_size": engine.world_size,
                "num_jitters": num_jitters,
                "device": str(device),
            },
        )
        share(folder, "curve.json", "result.json")


def _less_memory(job: AnyTrainJob) -> str:
    training = job.training
    return (
        f"Lower `max_tokens_per_batch` (it is {training.max_tokens_per_batch}) or raise `gradient_accumulation` (it is "
        f"{training.gradient_accumulation}); with several workers `zero_stage` 1 to 3 (it is {training.zero_stage}) "
        "shares the optimiser's memory out."
    )


class _Rank0:
    """Writes progress and the best weights beside the run."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model, self._folder = model, folder
        self._last = 0.0

    def progress(self, done: float, total: float, note: str) -> None:
        """At most twice a second; less often in an object store, where it may fail too.

        Raises:
            Abandoned: the watcher has given up.
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
                raise Abandoned(f"the training in {self._folder} was given up: {reason}")

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
