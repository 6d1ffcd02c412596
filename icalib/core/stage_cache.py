"""The stage cache: a stage whose inputs are the same is computed once.

`stage.json` has size and digest of each file; a stage with a damaged one is computed again. In an object store locks
reach one machine only, and two may compute the same stage: the first to finish is kept, and the same job gives the same
files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from icalib.core.contents import added_files, contents_of, damages, read_record
from icalib.core.errors import Abandoned, DamagedFileError, StorageError
from icalib.core.events import Emit, Message, StageFinished, StageStarted, ignore
from icalib.core.files import reading, remove_path, write_json
from icalib.core.job import Artifact, Job
from icalib.core.locks import FileLock, alone
from icalib.core.storage import is_current, is_mirrored, location, names_in, pull, push, remove

RESUME = "ray"
"""Folder in an unfinished stage that its workers alone read and write: the checkpoints of a training."""
_DONE = "stage.json"
_FILES = "files"
_NOT_CONTENT = (_DONE, RESUME)
LOCKS = ".locks"
"""Folder beside what its locks guard."""


@dataclass(frozen=True)
class StageName:
    """What a run calls a stage: `student` in group `round-2` is written round-2/student.

    `label` says what it computes, and its cached folder's name begins with it; `group` is a round, an ensemble member
    or a split; `round` is 0 outside of rounds; members of an ensemble share the label and differ by `index`.
    """

    label: str
    group: str = ""
    round: int = 0
    index: int = 0

    def __str__(self) -> str:
        label = f"{self.label}-{self.index}" if self.index else self.label
        return f"{self.group}/{label}" if self.group else label


@dataclass(frozen=True)
class Stage:
    """A finished stage: its folder, the digest of its job, and what it cost."""

    name: StageName
    digest: str
    path: Path
    reused: bool
    seconds: float

    def artifact(self, file: str = "") -> Artifact:
        """The stage's folder, or a file in it, as the input of another job."""
        return Artifact(path=self.path / file, digest=f"{self.digest}/{file}" if file else self.digest)


class JobCache(Protocol):
    """Returns the stage of a job."""

    def run(self, name: StageName, job: Job, build: Callable[[Path], None]) -> Stage:
        """Return the stage of a job, for which `build(folder)` computes it."""
        ...


class StageCache:
    """Folders named after a stage and its job's digest; `stage.json`, written last, says that one is complete.

    An unfinished folder is kept: it holds the checkpoints and shards from which the next try resumes. Of several
    processes that want the same stage one computes it and the others wait for it. If `recomputed` is given, a stage
    whose digest isn't in it is computed again and its digest added, unless another process uses the stage.
    """

    def __init__(self, root: Path, *, emit: Emit = ignore, recomputed: set[str] | None = None) -> None:
        self.root = root.resolve()
        self.finished: list[Stage] = []
        self._emit, self._recomputed = emit, recomputed
        self._in_use: list[FileLock] = []

    def run(self, name: StageName, job: Job, build: Callable[[Path], None]) -> Stage:
        """Return the stage of a job: from the cache, or built by `build(folder)`."""
        digest = job.digest()
        folder = self.root / f"{name.label}-{digest}"
        waiting = Message(f"{name}: waiting: another process is computing this stage")
        with alone(_lock_path(folder, "build"), lambda: self._emit(waiting)):
            if self._recomputed is not None and digest not in self._recomputed:
                self._recomputed.add(digest)
                if not remove_stage(folder, also_in_store=True):
                    self._emit(Message(f"{name}: another process uses this stage, so it isn't computed again"))
            if (folder / _DONE).is_file() and not is_current(folder / _DONE):
                remove_stage(folder)  # another machine has computed it again, or removed it
            in_use = FileLock(_lock_path(folder, "use"))  # as long as this cache lives, no other process removes it
            in_use.acquire(shared=True)
            self._in_use.append(in_use)
            stage = self._reused_or_built(name, job, digest, folder, build)
        self.finished.append(stage)
        seconds = round(stage.seconds, 2)
        self._emit(StageFinished(str(name), name.label, name.round, digest, folder, seconds, stage.reused))
        return stage

    def _reused_or_built(
        self, name: StageName, job: Job, digest: str, folder: Path, build: Callable[[Path], None]
    ) -> Stage:
        seconds = self._seconds_of_whole(name, folder)
        self._emit(StageStarted(str(name), seconds is not None))
        if seconds is not None:
            return Stage(name, digest, folder, True, seconds)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        try:
            build(folder)
        except Abandoned:
            with suppress(StorageError):
                remove(folder)  # a process that waits for the same stage computes it from scratch
            raise
        seconds = time.monotonic() - started
        share(folder)
        files = contents_of(folder, leave_out=_NOT_CONTENT)
        facts = {"name": str(name), "identity": job.identity(), "seconds": seconds, _FILES: files}
        write_json(folder / _DONE, facts)
        try:
            push(folder / _DONE)
        except StorageError:
            (folder / _DONE).unlink()  # unfinished for other machines, so for this one too
            raise
        return Stage(name, digest, folder, False, seconds)

    def _seconds_of_whole(self, name: StageName, folder: Path) -> float | None:
        """Return what a finished stage cost, or None; remove a damaged one, and what was added to a whole one."""
        path = folder / _DONE
        if not path.is_file():
            _download(folder)
        if not path.is_file():
            return None
        try:
            facts = read_record(path)
            with reading(path):
                for damage in damages(folder, facts[_FILES]):
                    raise damage
                for added in added_files(folder, facts[_FILES], leave_out=_NOT_CONTENT):
                    remove(added)
                return float(facts["seconds"])
        except DamagedFileError as error:
            self._emit(Message(f"{name}: {error.path} {error.found}: computing this stage again"))
            remove(folder)
            return None


def cached_stage(root: Path, name: StageName, job: Job) -> Stage | None:
    """Return the finished stage of a job in the cache at `root`, without checking its files; None if there is none."""
    digest = job.digest()
    folder = root / f"{name.label}-{digest}"
    if not (folder / _DONE).is_file() and _is_finished_there(folder):
        _download(folder)
    if not (folder / _DONE).is_file():
        return None
    with reading(folder / _DONE):
        return Stage(name, digest, folder, True, float(read_record(folder / _DONE)["seconds"]))


def _download(folder: Path) -> None:
    """Fetch a stage that another machine finished, or what the next try resumes from."""
    if _is_finished_there(folder):
        shutil.rmtree(folder, ignore_errors=True)
    pull(folder, leave_out=RESUME)


def _is_finished_there(folder: Path) -> bool:
    return is_mirrored(folder) and _DONE in names_in(folder)


def share(folder: Path, *names: str) -> None:
    """Push some files of a stage that is being computed, or all; a StorageError if another machine has finished it."""
    if _is_finished_there(folder):
        raise StorageError(
            f"another machine has finished {location(folder)} meanwhile. Run the same command again: it "
            "uses that result."
        )
    for path in (folder / name for name in names or ("",)):
        push(path)


def remove_stage(folder: Path, *, also_in_store: bool = False) -> bool:
    """Remove this machine's copy of a stage, unless a process here uses it; return whether it was removed."""
    lock = FileLock(_lock_path(folder, "use"))
    if not lock.acquire(wait=False):
        return False
    (remove if also_in_store else remove_path)(folder)
    lock.release()
    return True


def _lock_path(folder: Path, purpose: str) -> Path:
    return folder.parent / LOCKS / f"{folder.name}.{purpose}"
