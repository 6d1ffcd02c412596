"""One object store: its files, seen from the folder that mirrors it."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from icalib.core.errors import SettingError, StorageError
from icalib.core.files import whole_file
from icalib.core.storage.locations import location, mirrored_parts, mirrors, uri
from icalib.core.temporary import is_temporary, temporary_beside

T = TypeVar("T")

PATIENCE = "ICALIB_STORAGE_PATIENCE"
"""Environment variable: for how many seconds an operation that fails is tried again; default 30."""

_ATOMIC = ("s3", "gcs", "abfs")  # an object appears when its upload is complete; elsewhere a rename has this effect
_FINAL = re.compile(r"AWS Error (ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_\w+|SIGNATURE_\w+|UNRECOGNIZED_CLIENT\w*)")


@dataclass(frozen=True)
class ObjectStore:
    """A bucket, or its like, and the folder that mirrors it."""

    filesystem: Any
    base: str
    folder: Path

    @classmethod
    def of(cls, path: Path) -> ObjectStore | None:
        """Return the store of a mirrored path; None for other paths."""
        parts = mirrored_parts(path)
        if not parts:
            return None
        scheme, authority = parts[:2]
        bucket = uri(scheme, authority)
        return cls(*_with_retries("open", path, lambda: filesystem_of(bucket)), mirrors() / scheme / authority)

    def key(self, path: Path) -> str:
        """Return the key under which the store keeps a mirrored path."""
        return "/".join([self.base, *path.relative_to(self.folder).parts])

    def files(self, path: Path) -> dict[Path, Any]:
        """Return the store's files with size and time: `path` itself, or those in it."""
        from pyarrow.fs import FileSelector, FileType

        def find() -> list[Any]:
            key = self.key(path)
            facts = self.filesystem.get_file_info(key)
            if facts.type != FileType.Directory:
                return [facts]
            return self.filesystem.get_file_info(FileSelector(key, recursive=True, allow_not_found=True))

        found = _with_retries("look into", path, find)
        files = [facts for facts in found if facts.type == FileType.File]
        paths = {self.folder / facts.path.removeprefix(self.base).lstrip("/"): facts for facts in files}
        return {here: facts for here, facts in paths.items() if not is_temporary(here)}  # an upload that broke off

    def names(self, folder: Path) -> set[str]:
        """Return the names of the files and folders in a folder of the store."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(self.key(folder), allow_not_found=True)
        found = _with_retries("look into", folder, lambda: self.filesystem.get_file_info(selector))
        return {facts.base_name for facts in found}

    def download(self, path: Path, facts: Any) -> None:
        """Copy a file from the store to its path in the mirror."""
        from pyarrow.fs import LocalFileSystem, copy_files

        def copy() -> None:
            with whole_file(path) as temporary:
                copy_files(
                    facts.path,
                    str(temporary),
                    source_filesystem=self.filesystem,
                    destination_filesystem=LocalFileSystem(),
                )
                set_time(temporary, facts)

        _with_retries("read", path, copy)

    def upload(self, path: Path) -> None:
        """Copy a file of the mirror to the store; it appears there when it is complete."""
        from pyarrow.fs import LocalFileSystem, copy_files

        store, key = self.filesystem, self.key(path)
        by_rename = store.type_name not in _ATOMIC
        target = self.key(temporary_beside(path)) if by_rename else key

        def copy() -> None:
            copy_files(str(path), target, source_filesystem=LocalFileSystem(), destination_filesystem=store)
            if by_rename:
                store.move(target, key)

        if by_rename:
            _with_retries("write", path, lambda: store.create_dir(key.rpartition("/")[0], recursive=True))
        _with_retries("write", path, copy)
        _with_retries("write", path, lambda: set_time(path, store.get_file_info(key)))

    def delete(self, path: Path) -> None:
        """Delete a file or folder from the store, if it exists there."""
        from pyarrow.fs import FileType

        def delete() -> None:
            key = self.key(path)
            is_folder = self.filesystem.get_file_info(key).type == FileType.Directory
            with suppress(FileNotFoundError):  # it never existed, or another process was faster
                self.filesystem.delete_dir(key) if is_folder else self.filesystem.delete_file(key)

        _with_retries("remove", path, delete)


@lru_cache
def filesystem_of(bucket: str) -> tuple[Any, str]:
    """Open a store; credentials come from the environment or the machine's role."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        filesystem, base = FileSystem.from_uri(f"{bucket}/")
    except (ArrowException, ValueError, ImportError) as error:
        raise SettingError(
            f"can't open {bucket}: {' '.join(str(error).split())}. Expected s3://, gs://, abfs://, or fsspec+NAME:// "
            "for what fsspec supports; credentials and endpoint come from the environment."
        ) from error
    return filesystem, base.rstrip("/")


def _with_retries(verb: str, path: Path, act: Callable[[], T]) -> T:
    """Retry an operation with growing pauses until PATIENCE seconds have passed."""
    patience_s = float(os.environ.get(PATIENCE, "30"))
    begun = time.monotonic()
    for attempt in itertools.count():
        pause_s = 0.5 * 2**attempt * random.SystemRandom().uniform(0.5, 1.0)  # many processes fail at once
        try:
            return act()
        except OSError as error:
            waited_s = time.monotonic() - begun
            if _is_final(error) or waited_s + pause_s > patience_s:
                raise StorageError(
                    f"can't {verb} {location(path)} from {socket.gethostname()}: {' '.join(str(error).split())} (tried "
                    f"{attempt + 1} times in {waited_s:.0f} s). Check the store, and endpoint and credentials in this "
                    f"node's environment; {PATIENCE}=SECONDS retries for longer. What was written is complete: run the "
                    "same command again to resume."
                ) from error
        time.sleep(pause_s)
    raise AssertionError


def _is_final(error: OSError) -> bool:
    """Return whether a retry can't help."""
    return isinstance(error, PermissionError | FileNotFoundError) or _FINAL.search(str(error)) is not None


def set_time(path: Path, facts: Any) -> None:
    """Give a file that was downloaded or uploaded the store's time, which tells it from one that was written since."""
    nanoseconds = modified_s(facts) * 10**9
    os.utime(path, ns=(nanoseconds, nanoseconds))


def modified_s(facts: Any) -> int:
    """Return when a file was written, in whole seconds: stores report fractions in some answers only, a few no time."""
    return (facts.mtime_ns or 0) // 10**9
