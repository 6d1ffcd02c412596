"""Synchronisation of a mirror with its store: what is newer is downloaded, what differs is uploaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from icalib.core.files import content_digest
from icalib.core.locks import FileLock
from icalib.core.storage.locations import cache_root
from icalib.core.storage.object_store import ObjectStore, modified_s

MARKERS = ("pools.json", "stage.json", "result.json", "best.json")
"""Files whose presence marks their folder as whole."""

_TRANSFERS = 8  # at a time


def pull(path: Path, *, leave_out: str = "") -> list[Path]:
    """Download the files of a path that are missing here or newer in the store, and return them.

    Of several processes on a machine one downloads and the others wait. Nothing happens for paths outside of a mirror,
    or if the store has nothing there; folders named `leave_out` are left out. A StorageError says that the store failed
    for longer than PATIENCE, or refuses.
    """
    store = ObjectStore.of(path)
    if store is None:
        return []
    with FileLock(cache_root() / ".locks" / content_digest(str(path))):
        there = store.files(path).items()
        found = {here: facts for here, facts in there if leave_out not in here.relative_to(path).parts}
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
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder; for a mirrored one, those in the store."""
    store = ObjectStore.of(folder)
    return {path.name for path in folder.glob("*")} if store is None else store.names(folder)


def opened(path: Path) -> tuple[Any, str]:
    """Return what Ray needs to write to a location: pyarrow file system (None for a local path) and path in it."""
    store = ObjectStore.of(path)
    return (None, str(path)) if store is None else (store.filesystem, store.key(path))


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
    """Return the file itself, or a folder's files without locks and what a killed process left half-written."""
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    return [file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts)]


def _is_newer_there(path: Path, facts: Any) -> bool:
    """Return whether the store's file replaces the one here; one that was written here since is newer."""
    if not path.is_file():
        return True
    here = path.stat()
    return modified_s(facts) * 10**9 > here.st_mtime_ns or (_has_time(path, facts) and here.st_size != facts.size)


def _is_same(path: Path, facts: Any) -> bool:
    return _has_time(path, facts) and path.stat().st_size == facts.size


def _has_time(path: Path, facts: Any) -> bool:
    return path.stat().st_mtime_ns == modified_s(facts) * 10**9
