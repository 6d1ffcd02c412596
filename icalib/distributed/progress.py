"""What a training's rank 0 tells the driver, through files of the training's folder, while it goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from icalib.core.errors import Abandoned, StorageError
from icalib.core.events import Emit, EpochFinished, Progress
from icalib.core.files import read_json, read_json_list, whole_file, write_json
from icalib.core.stage_cache import share
from icalib.core.storage import is_mirrored, pull, push, remove
from icalib.models.checkpoint import POSTERIOR
from icalib.models.model import Model
from icalib.pipeline.executor import SPECTRAL_NORMS, norms_message
from icalib.training.job import TrainingJob

PROGRESS = "progress.json"
EPOCHS = "epochs.json"  # points of the learning curve on validation so far
STOP = "stop.json"  # the workers stop when it exists


class ProgressWatcher:
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
        progress = read_json(path) if (path := self._pulled(PROGRESS)) else None
        if progress is not None:
            self._emit(Progress(self._stage, progress["done"], progress["total"], progress["note"]))
        norms = read_json(path) if not self._norms_emitted and (path := self._pulled(SPECTRAL_NORMS)) else None
        if norms is not None:
            self._norms_emitted = True
            self._emit(norms_message(self._stage, norms))
        points = read_json_list(path) if (path := self._pulled(EPOCHS)) else ()
        if self._job.reports_epochs and len(points) > self._num_points:
            try:
                self._emit(EpochFinished(self._stage, self._job.loop_settings.epochs, points))
            except Abandoned as error:
                with suppress(StorageError):  # repeated after the next epoch
                    write_json(self._folder / STOP, {"reason": str(error)})
                    share(self._folder, STOP)
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


class Rank0:
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
        now, path = time.monotonic(), self._folder / PROGRESS
        if now - self._last > _interval(path):
            self._last = now
            with whole_file(path) as temporary:
                temporary.write_text(json.dumps({"done": done, "total": total, "note": note}))
            with suppress(StorageError):
                push(path)
                pull(self._folder / STOP)
            if (self._folder / STOP).is_file():
                reason = read_json(self._folder / STOP)["reason"]
                raise Abandoned(f"the training in {self._folder} was abandoned: {reason}")

    def best(self, weights: dict[str, Any]) -> None:
        """Save the best weights so far, replacing the earlier ones."""
        remove(self._folder / "checkpoint" / POSTERIOR)  # computed for the earlier weights
        self._model.save(self._folder / "checkpoint", weights)
        share(self._folder, "checkpoint")

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """Write the learning curve so far, which the driver reads."""
        write_json(self._folder / EPOCHS, list(points))
        with suppress(StorageError):
            push(self._folder / EPOCHS)
