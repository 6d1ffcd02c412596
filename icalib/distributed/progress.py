"""Reports of a training's rank 0 to the driver, through a file of the training's folder, during the training.

Ray Train's callbacks run in its controller, another process, which reaches the driver no better than rank 0 does; and
each of its reports is a barrier for all workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from icalib.core.errors import Abandoned, DamagedFileError, StorageError
from icalib.core.events import Emit, EpochFinished, Progress
from icalib.core.files import read_json, write_json
from icalib.core.stage_cache import share
from icalib.core.storage import is_mirrored, pull, push, remove
from icalib.models.checkpoint import POSTERIOR
from icalib.models.model import Model
from icalib.training.job import TrainingJob

PROGRESS = "progress.json"
STOP = "stop.json"  # the workers stop when it exists
_NOTHING: Mapping[str, Any] = {"done": 0.0, "total": 1.0, "note": "", "points": []}


class ProgressWatcher:
    """A thread that emits what rank 0 writes, and makes rank 0 stop once a consumer has abandoned the run."""

    def __init__(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        self._job, self._folder, self._stage, self._emit = job, folder, stage, emit
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._num_points = 0

    def __enter__(self) -> None:
        self._watching = self._pool.submit(self._watch)

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._pool.shutdown()
        if error[0] is None:
            self._watching.result()

    def _watch(self) -> None:
        while not self._over.wait(_interval(self._folder)):
            self._poll()
        self._poll()  # a short training may be over before the first interval

    def _poll(self) -> None:
        path = self._folder / PROGRESS
        with suppress(StorageError):  # the workers report an unreachable store
            pull(path)
        progress = _known(path)
        if not progress:
            return
        self._emit(Progress(self._stage, progress["done"], progress["total"], progress["note"]))
        if self._job.reports_epochs and len(progress["points"]) > self._num_points:
            self._num_points = len(progress["points"])
            try:
                self._emit(EpochFinished(self._stage, self._job.loop_settings.epochs, progress["points"]))
            except Abandoned as error:
                with suppress(StorageError):  # repeated after the next epoch
                    write_json(self._folder / STOP, {"reason": str(error)})
                    share(self._folder, STOP)


def note_progress(folder: Path, note: str) -> None:
    """Show a note next to the progress until training continues."""
    path = folder / PROGRESS
    write_json(path, {**_NOTHING, **_known(path), "note": note})


def _known(path: Path) -> Mapping[str, Any]:
    """Return what was told so far; nothing before that, or while another node replaces the file."""
    with suppress(DamagedFileError):
        return read_json(path)
    return {}


def _interval(path: Path) -> float:
    return 5.0 if is_mirrored(path) else 0.5


class WorkerReporter:
    """Observer on rank 0, which writes progress and the best weights to the training's folder."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model, self._folder = model, folder
        if is_mirrored(folder):
            (folder / STOP).unlink(missing_ok=True)  # of an earlier training, which only the store has forgotten
        self._progress, self._last = dict(_NOTHING), 0.0

    def progress(self, done: float, total: float, note: str) -> None:
        """Write the progress, at most twice a second; Abandoned if a consumer of the events stopped the training."""
        now = time.monotonic()
        if now - self._last > _interval(self._folder):
            self._last = now
            self._tell(done=done, total=total, note=note)
            stop = self._folder / STOP
            with suppress(StorageError):
                pull(stop)
            if stop.is_file():
                raise Abandoned(f"the training in {self._folder} was abandoned: {read_json(stop)['reason']}")

    def best(self, weights: dict[str, Any]) -> None:
        """Save the best weights so far, replacing the earlier ones."""
        remove(self._folder / "checkpoint" / POSTERIOR)  # computed for the earlier weights
        self._model.save(self._folder / "checkpoint", weights)
        share(self._folder, "checkpoint")

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """Write the learning curve on validation so far."""
        self._tell(points=list(points))

    def _tell(self, **news: Any) -> None:
        self._progress.update(news)
        write_json(self._folder / PROGRESS, self._progress)
        with suppress(StorageError):
            push(self._folder / PROGRESS)
