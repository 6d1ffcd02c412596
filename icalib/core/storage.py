"""Object stores: what lies at `s3://…`, `gs://…`, `abfs://…` has a mirror on every machine that works with it.

Everything reads and writes local paths. A path in the mirror stands for the location that its parts spell:
~/.cache/icalib/stores/s3/bucket/runs stands for s3://bucket/runs. `pull` brings what is newer there, `push` uploads
what differs here. Any other path lies on a local or shared disk: for it both do nothing.

A file is there whole or not at all. Those whose presence says that a folder is whole (`MARKERS`) come last, in both
directions, so that a folder with its marker is whole too. The mirror may be deleted whenever nothing runs.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
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
from icalib.core.files import content_digest, whole_file
from icalib.core.locks import FileLock

T = TypeVar("T")

CACHE = "ICALIB_CACHE"
"""Environment variable: the folder that holds this machine's mirror; default ~/.cache/icalib."""
PATIENCE = "ICALIB_STORAGE_PATIENCE"
"""Environment variable: for how many seconds an operation that fails is tried again; default 30."""
MARKERS = ("pools.json", "stage.json", "result.json", "best.json")
"""Files whose presence says that their folder is whole."""

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9.-]*(\+[a-z0-9.-]+)?)://(?P<authority>[^/]*)(?P<path>/.*)?", re.DOTALL)
_NO_AUTHORITY = "_"
_WHOLE_BY_ITSELF = ("s3", "gcs", "abfs")  # an object appears when its upload is complete; elsewhere a rename does it
_FINAL = re.compile(r"AWS Error (ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_\w+|SIGNATURE_\w+|UNRECOGNIZED_CLIENT\w*)")
_TRANSFERS = 8  # at a time


def local_path(location: str | Path) -> Path:
    """The local path of a location: in the mirror for an object store's URI, itself for a path.

    Raises:
        SettingError: the URI has a query, a password, or parts such as `..`.
    """
    if isinstance(location, Path) or "://" not in location:
        return Path(location)
    match = _URI.fullmatch(location.rstrip("/"))
    parts = (match["path"] or "").split("/")[1:] if match else []
    if match is None or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise SettingError(f"{location!r} is no location. Write a path, or e.g. s3://bucket/folder.")
    if match["scheme"] == "file":
        return Path("/", *parts)
    if "?" in location or ":" in match["authority"].partition("@")[0]:
        raise SettingError(
            f"{_without_password(location)} has a query or a password, which would land in run folders. Set such "
            "things in the environment of every node: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and the like."
        )
    return _mirrors().joinpath(match["scheme"], match["authority"] or _NO_AUTHORITY, *parts)


def location(path: Path) -> str:
    """What a local path stands for: an object store's URI, or the path itself."""
    parts = _mirrored_parts(path)
    return _uri(*parts) if parts else str(path)


def is_mirrored(path: Path) -> bool:
    """Whether a path stands for a location in an object store."""
    return bool(_mirrored_parts(path))


def pull(path: Path, *, leave_out: str = "") -> list[Path]:
    """Bring a file or folder here, as far as it isn't here or is newer there; returns the files that came.

    Of several processes of a machine one brings it and the others wait.

    Args:
        path: nothing happens if it is no mirrored path, or if nothing lies there.
        leave_out: folders of this name stay there.

    Raises:
        StorageError: the store failed for longer than our patience, or refuses.
        SettingError: it is a store that can't be opened.
    """
    store = _Store.of(path)
    if store is None:
        return []
    with FileLock(_root() / ".locks" / content_digest(str(path))):
        there = store.files(path).items()
        found = {here: facts for here, facts in there if leave_out not in here.relative_to(path).parts}
        news = [here for here, facts in found.items() if _is_news(here, facts)]
        _whole_last(news, lambda here: store.download(here, found[here]))
    return news


def push(path: Path) -> None:
    """Upload a file or folder, as far as it differs there; hidden files stay here.

    Args:
        path: nothing happens if it is no mirrored path, or if nothing lies here.

    Raises:
        StorageError: the store failed for longer than our patience, or refuses.
        SettingError: it is a store that can't be opened.
    """
    store = _Store.of(path)
    if store is None:
        return
    there = store.files(path)
    changed = [here for here in _visible_files(path) if here not in there or not _is_same(here, there[here])]
    for here in changed:
        if _is_marker(here) and here in there:
            store.delete(here)  # the folder isn't whole until all of it is replaced
    _whole_last(changed, store.upload)


def remove(path: Path) -> None:
    """Remove a file or folder, here and in the store that it is mirrored from."""
    store = _Store.of(path)
    if store is not None:
        for here in (*filter(_is_marker, store.files(path)), path):
            store.delete(here)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def names_in(folder: Path) -> set[str]:
    """Names of what lies in a folder; in the store, if it is mirrored."""
    store = _Store.of(folder)
    return {path.name for path in folder.glob("*")} if store is None else store.names(folder)


def opened(path: Path) -> tuple[Any, str]:
    """What Ray needs to write to a location: its pyarrow file system (None for a path) and the path in there."""
    store = _Store.of(path)
    return (None, str(path)) if store is None else (store.filesystem, store.key(path))


@dataclass(frozen=True)
class _Store:
    """A bucket, or its like, and the folder that mirrors it."""

    filesystem: Any
    base: str
    folder: Path

    @classmethod
    def of(cls, path: Path) -> _Store | None:
        """The store of a mirrored path; None for other paths."""
        parts = _mirrored_parts(path)
        if not parts:
            return None
        scheme, authority = parts[:2]
        uri = _uri(scheme, authority)
        return cls(*_patiently("open", path, lambda: _filesystem(uri)), _mirrors() / scheme / authority)

    def key(self, path: Path) -> str:
        return "/".join([self.base, *path.relative_to(self.folder).parts])

    def files(self, path: Path) -> dict[Path, Any]:
        """The files there, with size and time: `path` itself, or those in it."""
        from pyarrow.fs import FileSelector, FileType

        def find() -> list[Any]:
            key = self.key(path)
            facts = self.filesystem.get_file_info(key)
            if facts.type != FileType.Directory:
                return [facts]
            return self.filesystem.get_file_info(FileSelector(key, recursive=True, allow_not_found=True))

        found = _patiently("look into", path, find)
        places = (facts.path.removeprefix(self.base).lstrip("/") for facts in found)
        return {
            self.folder / place: facts
            for place, facts in zip(places, found, strict=True)
            if facts.type == FileType.File
        }

    def names(self, folder: Path) -> set[str]:
        """Names of the files and folders in a folder there."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(self.key(folder), allow_not_found=True)
        found = _patiently("look into", folder, lambda: self.filesystem.get_file_info(selector))
        return {facts.base_name for facts in found}

    def download(self, path: Path, facts: Any) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        def copy() -> None:
            with whole_file(path) as temporary:
                copy_files(
                    facts.path,
                    str(temporary),
                    source_filesystem=self.filesystem,
                    destination_filesystem=LocalFileSystem(),
                )
                _set_time(temporary, facts)

        _patiently("read", path, copy)

    def upload(self, path: Path) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        key = self.key(path)
        folder, _, name = key.rpartition("/")
        by_rename = self.filesystem.type_name not in _WHOLE_BY_ITSELF
        target = f"{folder}/.{name}.{socket.gethostname()}.{os.getpid()}.tmp" if by_rename else key

        def copy() -> None:
            if by_rename:
                self.filesystem.create_dir(folder, recursive=True)
            copy_files(str(path), target, source_filesystem=LocalFileSystem(), destination_filesystem=self.filesystem)
            if by_rename:
                self.filesystem.move(target, key)
            _set_time(path, self.filesystem.get_file_info(key))

        _patiently("write", path, copy)

    def delete(self, path: Path) -> None:
        from pyarrow.fs import FileType

        def delete() -> None:
            key = self.key(path)
            is_folder = self.filesystem.get_file_info(key).type == FileType.Directory
            with suppress(FileNotFoundError):  # it never was, or somebody else was faster
                self.filesystem.delete_dir(key) if is_folder else self.filesystem.delete_file(key)

        _patiently("remove", path, delete)


@lru_cache
def _filesystem(uri: str) -> tuple[Any, str]:
    """Open a store; credentials come from the environment or the machine's role."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        filesystem, base = FileSystem.from_uri(f"{uri}/")
    except (ArrowException, ValueError, ImportError) as error:
        raise SettingError(
            f"can't open {uri}: {' '.join(str(error).split())}. Expected s3://, gs://, abfs://, or fsspec+NAME:// for "
            "what fsspec knows; credentials and endpoint come from the environment."
        ) from error
    return filesystem, base.rstrip("/")


def _patiently(verb: str, path: Path, act: Callable[[], T]) -> T:
    """Try again, ever more slowly, for as long as our patience lasts."""
    patience = float(os.environ.get(PATIENCE, "30"))
    begun = time.monotonic()
    for attempt in itertools.count():
        pause = 0.5 * 2**attempt * random.SystemRandom().uniform(0.5, 1.0)  # many processes fail at once
        try:
            return act()
        except OSError as error:
            waited = time.monotonic() - begun
            if _is_final(error) or waited + pause > patience:
                raise StorageError(
                    f"can't {verb} {location(path)} from {socket.gethostname()}: {' '.join(str(error).split())} (tried "
                    f"{attempt + 1} times in {waited:.0f} s). Check the store, and endpoint and credentials in this "
                    f"node's environment; {PATIENCE}=SECONDS tries for longer. What was written stays whole: the same "
                    "command goes on from there."
                ) from error
        time.sleep(pause)
    raise AssertionError


def _is_final(error: OSError) -> bool:
    """Whether trying again can't help."""
    return isinstance(error, PermissionError | FileNotFoundError) or _FINAL.search(str(error)) is not None


def _whole_last(paths: Iterable[Path], act: Callable[[Path], None]) -> None:
    """Do it to all files, some at a time; then one by one to those that say that a folder is whole."""
    ordered = sorted(paths, key=_is_marker)
    number = len(ordered) - sum(map(_is_marker, ordered))
    with ThreadPoolExecutor(_TRANSFERS) as pool:
        list(pool.map(act, ordered[:number]))
    for path in ordered[number:]:
        act(path)


def _is_marker(path: Path) -> bool:
    return path.name in MARKERS


def _visible_files(path: Path) -> Sequence[Path]:
    """The file itself, or the files of a folder; neither locks nor what a killed process left half-written."""
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    return [file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts)]


def _is_news(path: Path, facts: Any) -> bool:
    """Whether what is there replaces what is here. What was written here since is newer, whoever wrote it."""
    if not path.is_file():
        return True
    here = path.stat()
    return _seconds(facts) * 10**9 > here.st_mtime_ns or (_has_time(path, facts) and here.st_size != facts.size)


def _is_same(path: Path, facts: Any) -> bool:
    return _has_time(path, facts) and path.stat().st_size == facts.size


def _has_time(path: Path, facts: Any) -> bool:
    return path.stat().st_mtime_ns == _seconds(facts) * 10**9


def _set_time(path: Path, facts: Any) -> None:
    """A file that was brought or uploaded has the store's time: so it is told from one that was written since."""
    nanoseconds = _seconds(facts) * 10**9
    os.utime(path, ns=(nanoseconds, nanoseconds))


def _seconds(facts: Any) -> int:
    """When it was written; stores tell fractions in some answers only, and a few no time at all."""
    return (facts.mtime_ns or 0) // 10**9


def _root() -> Path:
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "icalib").resolve()


def _mirrors() -> Path:
    return _root() / "stores"


def _mirrored_parts(path: Path) -> tuple[str, ...]:
    """Scheme, authority and names of a mirrored path; empty for other paths."""
    folder = _mirrors()
    absolute = Path(os.path.abspath(path))
    parts = absolute.relative_to(folder).parts if absolute.is_relative_to(folder) else ()
    return parts if len(parts) > 1 else ()


def _uri(scheme: str, authority: str, *parts: str) -> str:
    return "/".join([f"{scheme}://{'' if authority == _NO_AUTHORITY else authority}", *parts])


def _without_password(location: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", location.partition("?")[0])
