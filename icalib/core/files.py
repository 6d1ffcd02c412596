"""Atomic writes of files, and digests."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from icalib.core.errors import StorageError

FOLDER_NAME = r"^\w[\w.-]*$"
"""Pattern of the folder names that users may choose: no paths, and nothing hidden."""


@contextmanager
def whole_file(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary path beside `path` that is renamed to it if the block succeeds, and removed if it fails.

    Raises:
        StorageError: the disk is full or can't be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")  # process ids of two nodes may be equal
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise StorageError(
                f"can't write {path}: {error.strerror}. Nothing half-written is left. Free some space or choose "
                "another folder, then run the same command again."
            ) from error
        raise


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: str | Path) -> Any:
    """Read a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def is_file(path: Path) -> bool:
    """Return whether a path that a user has named is a file; one that is too long is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, read in blocks."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(value: Any) -> str:
    """Return the hex digest (16 digits) of a JSON-able value; the order of keys doesn't count.

    Example:
        >>> content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
        True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
