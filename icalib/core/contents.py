"""The files of a finished folder: names, sizes and digests, by which later damage is noticed.

Whoever finishes a folder records them, and whoever uses it compares. A file is read whole for that, but only once in
a process: `file_digest` remembers files by inode, size and modification time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from icalib.core.errors import DamagedFileError
from icalib.core.files import file_digest

Contents: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Size in bytes and SHA-256 of each file, by its path in the folder; JSON-able."""


def contents_of(folder: Path, *, leave_out: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return what a folder holds now, without hidden files.

    Args:
        folder: the folder.
        leave_out: names of files or folders in `folder` that don't count.
    """
    return {name: facts_of(folder / name) for name in _names(folder, leave_out)}


def facts_of(path: Path) -> dict[str, Any]:
    """Return size and digest of a file."""
    return {"size": path.stat().st_size, "sha256": file_digest(path)}


def check_contents(folder: Path, recorded: Contents, *, leave_out: Collection[str] = ()) -> None:
    """Compare the files of a folder with what was recorded.

    Args:
        folder: the folder.
        recorded: what it held when it was finished.
        leave_out: names of files or folders in `folder` that are not compared.

    Raises:
        DamagedFileError: a recorded file is missing or has changed.
    """
    for name, facts in sorted(recorded.items()):
        if name.partition("/")[0] not in leave_out and (found := _change(folder / name, facts)):
            raise DamagedFileError(folder / name, found)


def added_files(folder: Path, recorded: Contents, *, leave_out: Collection[str] = ()) -> list[Path]:
    """Return the files that were added to a folder after it was finished."""
    return [folder / name for name in _names(folder, leave_out) if name not in recorded]


def _change(path: Path, facts: Mapping[str, Any]) -> str:
    """Describe how a file differs from what was recorded; empty if it doesn't."""
    try:
        size = path.stat().st_size
        if size != facts["size"]:
            return f"has {size} bytes instead of {facts['size']}"
        return "" if file_digest(path) == facts["sha256"] else "has other content than was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"can't be read ({error.strerror})"


def _names(folder: Path, leave_out: Collection[str]) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if parts[0] not in leave_out and not any(part.startswith(".") for part in parts) and path.is_file():
            yield "/".join(parts)
