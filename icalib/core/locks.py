"""Locks between processes, on one machine or on a shared file system."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from icalib.core.errors import StorageError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class FileLock:
    """A lock on a file beside what it guards, or on a folder; it ends with its process, even a killed one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self, *, shared: bool = False, wait: bool = True) -> bool:
        """Acquire the lock, exclusively or `shared` with other holders; return False if that would mean to wait."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDONLY if self._path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StorageError(
                f"can't write {self._path}: {error.strerror}. Choose a folder that can be written, or free some space."
            ) from error
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException as error:
            os.close(file)
            if isinstance(error, OSError) and error.errno in _NO_LOCKS:
                raise StorageError(
                    f"can't lock {self._path}: {error.strerror}. Give --runs a folder on a file system with locks "
                    "(Lustre: mount it with the option `flock`)."
                ) from error
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@contextmanager
def alone(path: Path, on_wait: Callable[[], None]) -> Generator[None, None, None]:
    """Hold the lock on a file for as long as the block lasts; `on_wait` is called if that means to wait."""
    lock = FileLock(path)
    if not lock.acquire(wait=False):
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
