"""The files of a finished folder: names, sizes and digests, by which later damage is noticed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from icalib.core.errors import DamagedFileError
from icalib.core.files import file_digest, read_json
from icalib.core.storage import is_mirrored, pull

Contents: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Size in bytes and SHA-256 of each file, by its path in the folder; JSON-able."""


def contents_of(folder: Path, *, leave_out: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return what a folder holds now, without hidden files and the names in `leave_out`."""
    return {name: facts_of(folder / name) for name in _names(folder, leave_out)}


def facts_of(path: Path) -> dict[str, Any]:
    """Return size and digest of a file."""
    return {"size": path.stat().st_size, "sha256": file_digest(path)}


def damages(
    folder: Path, recorded: Contents, *, cure: str = "", leave_out: Collection[str] = ()
) -> Iterator[DamagedFileError]:
    """Yield an error with the `cure` for each file, outside of `leave_out`, that is missing or not as it was recorded.

    In the mirror of an object store it is first downloaded again. A ValueError says that a name leaves the folder.
    """
    for name, facts in sorted(recorded.items()):
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise ValueError(f"{name!r} is not a file in this folder")
        if name.partition("/")[0] in leave_out or not (found := _change(path, facts)):
            continue
        if not _is_downloaded_again(path) or (found := _change(path, facts)):
            yield DamagedFileError(path, found, cure)


def added_files(folder: Path, recorded: Contents, *, leave_out: Collection[str] = ()) -> list[Path]:
    """Return the files that were added to a folder after it was finished."""
    return [folder / name for name in _names(folder, leave_out) if name not in recorded]


def read_record(path: Path) -> dict[str, Any]:
    """Read the JSON file in which a folder's contents are recorded; in a mirror, a damaged one is downloaded again."""
    try:
        return read_json(path)
    except DamagedFileError:
        if not _is_downloaded_again(path):
            raise
        return read_json(path)


def _is_downloaded_again(path: Path) -> bool:
    """Replace the mirror's copy of a file by the store's; return False if no store is mirrored."""
    if not is_mirrored(path):
        return False
    path.unlink(missing_ok=True)
    pull(path)
    return True


def _change(path: Path, facts: Mapping[str, Any]) -> str:
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
