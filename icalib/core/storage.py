"""Object stores: every machine that works with `s3://…`, `gs://…` or `abfs://…` keeps a mirror of what it uses there.

All code reads and writes local paths. A path in the mirror stands for the location that its parts spell:
~/.cache/icalib/stores/s3/bucket/runs stands for s3://bucket/runs. `pull` downloads what is newer in the store, `push`
uploads what differs here. For a path on a local or shared disk both do nothing.

A file appears whole or not at all. Those whose presence marks a folder as whole (`MARKERS`) are transferred last, in
both directions, so that a folder with its marker is whole, too. The mirror may be deleted whenever nothing runs.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from icalib.core.errors import SettingError, StorageError
from icalib.core.files import atomic_write, content_digest, is_temporary, remove_path, temporary_beside
from icalib.core.locks import FileLock
from icalib.core.text import short_repr

T = TypeVar("T")

CACHE = "ICALIB_CACHE"
"""Environment variable: the folder that holds this machine's mirror; default ~/.cache/icalib."""
PATIENCE = "ICALIB_STORAGE_PATIENCE"
"""Environment variable: for how many seconds an operation that fails is tried again; default 30."""
MARKERS = ("pools.json", "stage.json", "result.json", "best.json")  # whose presence marks their folder as whole
BEGINNINGS = ("config.yaml", "sweep.yaml")
"""The first file of a run's or sweep's folder; another machine that has written it again has begun the folder anew."""

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9.-]*(\+[a-z0-9.-]+)?)://(?P<authority>[^/]*)(?P<path>/.*)?", re.DOTALL)
_NO_AUTHORITY = "_"
_ATOMIC = ("s3", "gcs", "abfs")  # an object appears when its upload is complete; elsewhere a rename has this effect
_FINAL = re.compile(r"AWS Error (ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_\w+|SIGNATURE_\w+|UNRECOGNIZED_CLIENT\w*)")
_TRANSFERS = 8  # at a time


def local_path(location: str | Path) -> Path:
    """Return the local path of a location, in the mirror for a URI; a SettingError for a query, a password or `..`."""
    if not isinstance(location, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]  # of an API call
        raise SettingError(f"found {short_repr(location)}, expected a path or a URI, e.g. s3://bucket/folder.")
    if isinstance(location, Path) or "://" not in location:
        return Path(location)
    match = _URI.fullmatch(location.rstrip("/"))
    parts = (match["path"] or "").split("/")[1:] if match else []
    if match is None or any(part in ("", ".", "..") or "\0" in part for part in parts):
        shown = _shown(location)
        raise SettingError(f"{shown!r} is not a valid location. Write a path, or e.g. s3://bucket/folder.")
    if match["scheme"] == "file":
        return Path("/", *parts)
    if "?" in location or ":" in match["authority"].partition("@")[0]:
        raise SettingError(
            f"{_shown(location)} has a query or a password, which would land in run folders. Set such things in the "
            "environment of every node: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and the like."
        )
    return _mirrors().joinpath(match["scheme"], match["authority"] or _NO_AUTHORITY, *parts)


def _shown(location: str) -> str:
    """Return a URI for messages, without what may be a secret: a query, and what names a user."""
    scheme, mark, rest = location.partition("://")
    user, at, rest = rest.rpartition("@")
    rest = rest.partition("?")[0]
    return f"{scheme}{mark}{'…@' if user else at}{'…' if ':' in rest.partition('/')[0] else rest}"


def location(path: Path) -> str:
    """Return what a local path stands for: an object store's URI, or the path itself."""
    parts = _mirrored_parts(path)
    return _uri(*parts) if parts else str(path)


def is_mirrored(path: Path) -> bool:
    """Return whether a path stands for a location in an object store."""
    return bool(_mirrored_parts(path))


def pull(path: Path, *, leave_out: str = "") -> list[Path]:
    """Download the files of a path that are missing here or newer in the store, and return them; one process at a time.

    Nothing happens outside of a mirror, or if the store has nothing; folders named `leave_out` are left out. Before one
    of BEGINNINGS is replaced, its folder here is removed. A StorageError says that the store failed for longer than
    PATIENCE, or refuses.
    """
    store = ObjectStore.of(path)
    if store is None:
        return []
    with FileLock(_mirrors().parent / ".locks" / content_digest(str(path))):
        there = store.files(path).items()
        found = {here: facts for here, facts in there if leave_out not in here.relative_to(path).parts}
        for here, facts in found.items():
            if here.name in BEGINNINGS and here.is_file() and _is_newer_there(here, facts):
                remove_path(here.parent)
        newer = [here for here, facts in found.items() if _is_newer_there(here, facts)]
        _markers_last(newer, lambda here: store.download(here, found[here]))
    return newer


def push(path: Path) -> None:
    """Upload the files of a mirrored path that differ from those in the store; hidden files are left out."""
    store = ObjectStore.of(path)
    if store is None:
        return
    there = store.files(path)
    changed = [here for here in _visible_files(path) if here not in there or not _is_same(here, there[here])]
    for here in changed:
        if _is_marker(here) and here in there:
            store.delete(here)  # the folder isn't whole until all of it is replaced
    _markers_last(changed, store.upload)


def remove(path: Path) -> None:
    """Remove a file or folder, here and in the store that it is mirrored from."""
    store = ObjectStore.of(path)
    if store is not None:
        for here in (*filter(_is_marker, store.files(path)), path):
            store.delete(here)
    remove_path(path)


def is_current(path: Path) -> bool:
    """Return whether a file is the one in the store that it is mirrored from; outside of a mirror every file is."""
    store = ObjectStore.of(path)
    return store is None or any(_is_same(here, facts) for here, facts in store.files(path).items() if here == path)


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder; for a mirrored one, those in the store."""
    store = ObjectStore.of(folder)
    return {path.name for path in folder.glob("*")} if store is None else store.names(folder)


def opened(path: Path) -> tuple[Any, str]:
    """Return what Ray needs to write to a location: pyarrow file system (None for a local path) and path in it."""
    store = ObjectStore.of(path)
    return (None, str(path)) if store is None else (store.filesystem, store.key(path))


@dataclass(frozen=True)
class ObjectStore:
    """A bucket, or its like, and the folder that mirrors it."""

    filesystem: Any
    base: str
    folder: Path

    @classmethod
    def of(cls, path: Path) -> ObjectStore | None:
        """Return the store of a mirrored path; None for other paths."""
        parts = _mirrored_parts(path)
        if not parts:
            return None
        scheme, authority = parts[:2]
        bucket = _uri(scheme, authority)
        return cls(*_with_retries("open", path, lambda: filesystem_of(bucket)), _mirrors() / scheme / authority)

    def key(self, path: Path) -> str:
        """Return the key of a mirrored path in the store."""
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

        files = [facts for facts in _with_retries("look into", path, find) if facts.type == FileType.File]
        if outside := next((facts.path for facts in files if ".." in facts.path.split("/")), None):
            raise StorageError(
                f"{location(path)} contains an object with the key {outside!r}, whose `..` would place it outside of "
                "the folder that mirrors the store. Remove it from the store, and find out who wrote it."
            )
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

        def copy() -> None:
            with atomic_write(path) as temporary:
                _copy(facts.path, self.filesystem, str(temporary), None)
                _set_time(temporary, facts)

        _with_retries("read", path, copy)

    def upload(self, path: Path) -> None:
        """Copy a file of the mirror to the store; it appears there when it is complete."""
        store, key = self.filesystem, self.key(path)
        by_rename = store.type_name not in _ATOMIC
        target = self.key(temporary_beside(path)) if by_rename else key

        def copy() -> None:
            if by_rename:
                store.create_dir(key.rpartition("/")[0], recursive=True)
            _copy(str(path), None, target, store)
            if by_rename:
                store.move(target, key)
            _set_time(path, store.get_file_info(key))

        _with_retries("write", path, copy)

    def delete(self, path: Path) -> None:
        """Delete a file or folder from the store, if it exists there."""
        from pyarrow.fs import FileType

        def delete() -> None:
            key = self.key(path)
            is_folder = self.filesystem.get_file_info(key).type == FileType.Directory
            with suppress(FileNotFoundError):  # it never existed, or another process was faster
                self.filesystem.delete_dir(key) if is_folder else self.filesystem.delete_file(key)

        _with_retries("remove", path, delete)


def _copy(source: str, source_store: Any, target: str, target_store: Any) -> None:
    from pyarrow.fs import LocalFileSystem, copy_files

    here = LocalFileSystem()
    copy_files(source, target, source_filesystem=source_store or here, destination_filesystem=target_store or here)


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
    patience_s = float(os.environ.get(PATIENCE, "30"))
    begun = time.monotonic()
    for attempt in itertools.count():
        pause_s = 0.5 * 2**attempt * random.SystemRandom().uniform(0.5, 1.0)  # many processes fail at once
        try:
            return act()
        except OSError as error:
            waited_s = time.monotonic() - begun
            is_final = isinstance(error, PermissionError | FileNotFoundError) or _FINAL.search(str(error))
            if is_final or waited_s + pause_s > patience_s:
                raise StorageError(
                    f"can't {verb} {location(path)} from {socket.gethostname()}: {' '.join(str(error).split())} (tried "
                    f"{attempt + 1} times in {waited_s:.0f} s). Check the store, and endpoint and credentials in this "
                    f"node's environment; {PATIENCE}=SECONDS retries for longer. What was written is complete: run the "
                    "same command again to resume."
                ) from error
        time.sleep(pause_s)
    raise AssertionError


def _markers_last(paths: Iterable[Path], transfer: Callable[[Path], None]) -> None:
    """Transfer all files, several at a time; then one by one those that mark a folder as whole."""
    ordered = sorted(paths, key=_is_marker)
    num_others = len(ordered) - sum(map(_is_marker, ordered))
    with ThreadPoolExecutor(_TRANSFERS) as pool:
        list(pool.map(transfer, ordered[:num_others]))
    for path in ordered[num_others:]:
        transfer(path)


def _is_marker(path: Path) -> bool:
    return path.name in MARKERS


def _visible_files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    return [file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts)]


def _is_newer_there(path: Path, facts: Any) -> bool:
    """Return whether the store's file replaces the one here; one that was written here since is newer."""
    if not path.is_file():
        return True
    return _modified_ns(facts) >= path.stat().st_mtime_ns and not _is_same(path, facts)


def _is_same(path: Path, facts: Any) -> bool:
    here = path.stat()
    return here.st_mtime_ns == _modified_ns(facts) and here.st_size == facts.size


def _set_time(path: Path, facts: Any) -> None:
    """Give a file that was downloaded or uploaded the store's time, so that one that was written since differs."""
    os.utime(path, ns=(_modified_ns(facts), _modified_ns(facts)))


def _modified_ns(facts: Any) -> int:
    """Return when a file was written, in whole seconds: stores report fractions in some answers only, a few no time."""
    return (facts.mtime_ns or 0) // 10**9 * 10**9


def _mirrors() -> Path:
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "icalib").resolve() / "stores"


def _mirrored_parts(path: Path) -> tuple[str, ...]:
    """Return scheme, authority and names of a mirrored path; nothing for other paths."""
    folder = _mirrors()
    absolute = Path(os.path.abspath(path))
    parts = absolute.relative_to(folder).parts if absolute.is_relative_to(folder) else ()
    return parts if len(parts) > 1 else ()


def _uri(scheme: str, authority: str, *names: str) -> str:
    return "/".join([f"{scheme}://{'' if authority == _NO_AUTHORITY else authority}", *names])
