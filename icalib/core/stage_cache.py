"""The stage cache: a stage whose inputs are the same is computed once.

In an object store (see `icalib.core.storage`) locks reach one machine only: two machines may compute the same stage.
That is waste and no damage, since a finished stage is left alone and the same inputs give the same files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icalib.core.errors import Abandoned, StorageError
from icalib.core.files import content_digest, read_json, write_json
from icalib.core.locks import FileLock
from icalib.core.storage import is_mirrored, location, names_in, pull, push, remove

RESUME = "ray"
"""Folder in an unfinished stage that its workers alone read and write: the checkpoints of a training."""
_DONE = "stage.json"
_LOCKS = ".locks"


@dataclass(frozen=True)
class Stage:
    """A finished stage: its folder, the digest of its inputs, and what it cost."""

    name: str
    digest: str
    path: Path
    reused: bool
    seconds: float

    def record(self) -> dict[str, Any]:
        """As it stands in stages.json."""
        return {
            "name": self.name,
            "digest": self.digest,
            "reused": self.reused,
            "seconds": round(self.seconds, 2),
            "path": location(self.path),
        }


class StageCache:
    """Folders named after a stage and the digest of its inputs; `stage.json`, written last, says that one is whole.

    An unfinished folder stays: it holds the checkpoints and shards from which the next try goes on. Of several
    processes that want the same stage one computes it and the others wait for it.

    Args:
        on_wait: hears the name of a stage that another process computes just now.
        fresh: compute every stage anew, once.
    """

    def __init__(
        self,
        root: Path,
        *,
        on_start: Callable[[str, bool], None] = lambda _name, _reused: None,
        on_finish: Callable[[Stage], None] = lambda _stage: None,
        on_wait: Callable[[str], None] = lambda _name: None,
        fresh: bool = False,
    ) -> None:
        self.root = root.resolve()
        self.finished: list[Stage] = []
        self._on_start, self._on_finish, self._on_wait, self._fresh = on_start, on_finish, on_wait, fresh
        self._in_use: list[FileLock] = []

    def run(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None], *, kind: str = "") -> Stage:
        """The stage with these inputs: from the cache, or built by `build(folder)`.

        Args:
            name: how the run calls it, e.g. round-2/student.
            inputs: everything that the result depends on, JSON-able; paths don't belong here, digests do.
            kind: what the folder is called; the same stage may have different names in different runs.
        """
        digest = content_digest({"kind": kind or name, **inputs})
        folder = self.root / f"{(kind or name).replace('/', '-')}-{digest}"
        self._keep(folder)
        with self._alone(name, folder):
            stage = self._reused_or_built(name, digest, folder, inputs, build)
        self.finished.append(stage)
        self._on_finish(stage)
        return stage

    def _reused_or_built(
        self, name: str, digest: str, folder: Path, inputs: dict[str, Any], build: Callable[[Path], None]
    ) -> Stage:
        if self._fresh and digest not in {stage.digest for stage in self.finished}:
            remove(folder)
        if not (folder / _DONE).is_file():
            _bring(folder)
        reused = (folder / _DONE).is_file()
        self._on_start(name, reused)
        if reused:
            return Stage(name, digest, folder, True, float(read_json(folder / _DONE)["seconds"]))
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        try:
            build(folder)
        except Abandoned:
            with suppress(StorageError):
                remove(folder)  # whoever waits for the same begins anew
            raise
        seconds = time.monotonic() - started
        share(folder)
        _finish(folder, {"name": name, "inputs": inputs, "seconds": seconds})
        return Stage(name, digest, folder, False, seconds)

    @contextmanager
    def _alone(self, name: str, folder: Path) -> Generator[None, None, None]:
        """No other process computes the stage meanwhile."""
        lock = FileLock(_lock_path(folder, "build"))
        if not lock.acquire(wait=False):
            self._on_wait(name)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _keep(self, folder: Path) -> None:
        """Nobody removes the stage as long as this cache is in use."""
        lock = FileLock(_lock_path(folder, "use"))
        lock.acquire(shared=True)
        self._in_use.append(lock)


def _bring(folder: Path) -> None:
    """A stage as another machine finished it, instead of what is here; or else what the next try goes on from."""
    if _is_finished_there(folder):
        shutil.rmtree(folder, ignore_errors=True)
    pull(folder, leave_out=RESUME)


def _is_finished_there(folder: Path) -> bool:
    return is_mirrored(folder) and _DONE in names_in(folder)


def _finish(folder: Path, facts: dict[str, Any]) -> None:
    write_json(folder / _DONE, facts)
    try:
        push(folder / _DONE)
    except StorageError:
        (folder / _DONE).unlink()  # unfinished for the others, so for this machine too
        raise


def share(folder: Path, *names: str) -> None:
    """Push some files of a stage that is being computed, or all.

    Raises:
        StorageError: another machine has finished the same stage meanwhile.
    """
    if _is_finished_there(folder):
        raise StorageError(
            f"another machine has finished {location(folder)} meanwhile. Give the same command again: it goes on with "
            "what is there."
        )
    for path in (folder / name for name in names or ("",)):
        push(path)


def remove_stage(folder: Path) -> bool:
    """Remove a stage from its cache, unless some process uses it; tells whether it is gone.

    In an object store it stays, since locks don't tell who uses it there; what goes is this machine's copy.
    """
    lock = FileLock(_lock_path(folder, "use"))
    if not lock.acquire(wait=False):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
    return True


def _lock_path(folder: Path, purpose: str) -> Path:
    return folder.parent / _LOCKS / f"{folder.name}.{purpose}"
