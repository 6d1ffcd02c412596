"""Where a training's workers keep the checkpoints that it resumes from: its folder `RESUME`, by Ray Train or alone."""

from __future__ import annotations

import json
import platform
import re
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from icalib.core.errors import StorageError
from icalib.core.stage_cache import RESUME, share
from icalib.core.storage import names_in, pull, remove

STATE = "loop.json"  # the file that is written last: a checkpoint without it is not whole

_LIST = "checkpoint_manager_snapshot.json"  # Ray Train's, of its own checkpoints beside it
_CHECKPOINT = re.compile(r"checkpoint_\d")
_OF_ONE = re.compile(r"checkpoint_\d{9}")


class OwnCheckpoints:
    """Those of a worker that is alone, in the training's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, write: Callable[[Path], None], step: int) -> None:
        """Keep the checkpoint that `write` writes to a folder, in place of earlier ones."""
        name = f"checkpoint_{step:09}"
        path = self._folder / RESUME / name
        remove(path)  # half of it, if its worker died
        path.mkdir(parents=True)
        write(path)
        files = [str(file.relative_to(self._folder)) for file in path.rglob("*") if file.is_file()]
        share(self._folder, *sorted(files, key=lambda file: file.endswith(STATE)))
        for other in self._names() - {name}:
            remove(self._folder / RESUME / other)

    @contextmanager
    def last(self) -> Generator[Path | None, None, None]:
        """Give access to the folder of the last checkpoint, or None."""
        paths = [self._folder / RESUME / name for name in sorted(self._names())]
        whole = [path for path in paths if STATE in names_in(path)]
        if whole:
            pull(whole[-1])
        yield whole[-1] if whole else None

    def _names(self) -> set[str]:
        return {name for name in names_in(self._folder / RESUME) if _OF_ONE.fullmatch(name)}


class RayCheckpoints:
    """Those of Ray Train's workers: each writes its part, and Ray merges them in the training's folder."""

    def __init__(self, folder: Path) -> None:
        self._own = OwnCheckpoints(folder)

    def save(self, write: Callable[[Path], None], step: int) -> None:
        """Report what each worker's `write` writes to a folder; all workers of a training call it."""
        import ray.train

        with tempfile.TemporaryDirectory() as folder:
            try:
                write(Path(folder))
            except StorageError as error:
                raise StorageError(f"on {platform.node()}: {error} TMPDIR names the folder when Ray starts.") from error
            ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))

    @contextmanager
    def last(self) -> Generator[Path | None, None, None]:
        """Give access to the folder of the last checkpoint, or None."""
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            with self._own.last() as folder:
                yield folder
        else:
            with checkpoint.as_directory() as folder:
                yield Path(folder)


Checkpoints = OwnCheckpoints | RayCheckpoints


def last_name(folder: Path) -> str:
    """Return the name of a training's last whole checkpoint; empty if there is none."""
    names = sorted(filter(_CHECKPOINT.match, names_in(folder / RESUME)), reverse=True)
    return next((name for name in names if STATE in names_in(folder / RESUME / name)), "")


def has_ray_checkpoints(folder: Path) -> bool:
    """Return whether Ray Train's workers have saved a checkpoint, which only they can resume from."""
    return bool(name := last_name(folder)) and not _OF_ONE.fullmatch(name)  # Ray's names begin with the year


def remove_unlisted(folder: Path) -> None:
    """Remove all checkpoints where Ray Train's list of them is cut off or names one that isn't there.

    A full disk or a kill can leave half a list, and a copy of a running training an old one: Ray Train would refuse
    every further attempt.
    """
    path = folder / RESUME / _LIST
    if _LIST not in names_in(path.parent):
        return
    pull(path)
    content = path.read_bytes()  # an error of the file system says nothing about the checkpoints, which stay
    try:
        names = [str(entry["checkpoint_dir_name"]) for entry in json.loads(content)["checkpoint_results"]]
    except (ValueError, LookupError, TypeError):
        remove(path.parent)
        return
    if not all(STATE in names_in(path.with_name(name)) for name in names):
        remove(path.parent)
