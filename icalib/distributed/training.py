"""Training runs: Ray Train places workers, DeepSpeed moves the weights."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from icalib.core.errors import IcalibError, SettingError
from icalib.core.files import read_json, whole_file, write_json
from icalib.distributed.chains import complete_posterior
from icalib.distributed.session import Resources
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.regimes.workbench import TrainJob

_PROGRESS = "progress.json"
_ERROR = "error.json"
SPECTRAL_NORMS = "spectral_norms.json"
"""Norms of the bounded layers before training, by layer; only where the encoder's weights are bounded."""
OnProgress = Callable[[float, float, str], None]


def train(job: TrainJob, folder: Path, resources: Resources, on_progress: OnProgress) -> None:
    """Run a training job in `folder`: checkpoint/ (the best weights), curve.json, result.json.

    The same folder resumes from its last checkpoint.

    Raises:
        IcalibError: the workers failed for good; what the first of them said is in the message.
    """
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    (folder / _ERROR).unlink(missing_ok=True)
    trainer = TorchTrainer(
        _worker,
        train_loop_config={"job": job.model_dump_json(), "folder": str(folder), "threads": resources.cpus_per_worker},
        scaling_config=ScalingConfig(
            num_workers=resources.num_workers,
            use_gpu=resources.use_gpu,
            resources_per_worker={"CPU": resources.cpus_per_worker, **({"GPU": 1} if resources.use_gpu else {})},
        ),
        run_config=RunConfig(
            name="ray",
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=3, controller_failure_limit=3),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    with _watching(folder / _PROGRESS, on_progress):
        try:
            trainer.fit()
        except Exception as error:
            raise _explained(folder, error) from error
    if isinstance(job.ranker.head, PolyaGammaHead.Config):
        complete_posterior(job, folder / "checkpoint", resources)
    _remove_resume_state(folder)


def _explained(folder: Path, error: Exception) -> IcalibError:
    if (folder / _ERROR).is_file():
        facts = read_json(folder / _ERROR)
        kind = SettingError if facts["kind"] == "SettingError" else IcalibError
        return kind(facts["message"])
    return IcalibError(
        f"training failed in {folder} after 3 retries: {error}. The same command goes on from the last checkpoint; "
        "if memory ran out, lower `max_tokens_per_batch` or raise `gradient_accumulation`."
    )


def _remove_resume_state(folder: Path) -> None:
    """Optimiser states are of no use once the best weights are written, and are three times their size."""
    shutil.rmtree(folder / "ray", ignore_errors=True)
    (folder / _PROGRESS).unlink(missing_ok=True)


@contextmanager
def _watching(path: Path, on_progress: OnProgress) -> Generator[None, None, None]:
    """Tell `on_progress` what rank 0 writes, until the block ends."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if path.is_file():
                facts = read_json(path)
                on_progress(facts["done"], facts["total"], facts["note"])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _worker(config: dict[str, Any]) -> None:
    """One training worker."""
    import ray.train
    import ray.train.torch
    import torch

    from icalib.distributed.engine import DeepSpeedEngine
    from icalib.regimes.jobs import add_posterior, prepare_training
    from icalib.regimes.training import train as train_loop

    torch.set_num_threads(config["threads"])
    job, folder = TrainJob.model_validate_json(config["job"]), Path(config["folder"])
    device = ray.train.torch.get_device()
    try:
        training = prepare_training(job, device)
        norms = training.ranker.encoder.spectral_norms
        if norms and ray.train.get_context().get_world_rank() == 0:
            write_json(folder / SPECTRAL_NORMS, norms)
        engine = DeepSpeedEngine(training.ranker, job.training, device)
        observer = _Rank0(job, folder)
        state = train_loop(
            training.ranker,
            engine,
            training.curriculum,
            job.training,
            observer,
            seed=job.seed,
            validation=training.validation,
        )
        if job.ranker.head.has_posterior:
            engine.gather(None)  # now the best weights lie there for all to read
            add_posterior(
                folder / "checkpoint", training, job, device,
                rank=engine.rank, world_size=engine.world_size, gather=engine.gather, with_chains=False,
            )  # fmt: skip
    except IcalibError as error:
        # Retrying can't mend what a user must.
        write_json(folder / _ERROR, {"kind": type(error).__name__, "message": str(error)})
        raise
    if engine.rank == 0:
        write_json(folder / "curve.json", state.log)
        write_json(
            folder / "result.json",
            {
                "figure": state.best if training.validation else None,
                "best_epoch": state.best_epoch,
                "epochs": state.epoch,
                "updates": state.step,
                "examples": state.examples,
                "seconds": state.seconds,
                "threads": torch.get_num_threads(),
                "world_size": engine.world_size,
                "device": str(device),
            },
        )


class _Rank0:
    """Writes progress and the best weights beside the run."""

    def __init__(self, job: TrainJob, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._last = 0.0

    def progress(self, done: float, total: float, note: str) -> None:
        """At most twice a second."""
        now = time.monotonic()
        if now - self._last > 0.5:
            self._last = now
            with whole_file(self._folder / _PROGRESS) as temporary:
                temporary.write_text(json.dumps({"done": done, "total": total, "note": note}))

    def best(self, weights: dict[str, Any]) -> None:
        """Keep these weights; the earlier ones are replaced whole."""
        from icalib.regimes.ranker import save_ranker

        save_ranker(self._folder / "checkpoint", self._job.ranker, weights)
