"""Writing files so that they are there whole or not at all."""

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
"""What a folder may be called that a user names: no path, and nothing hidden."""


@contextmanager
def whole_file(path: str | Path) -> Generator[Path, None, None]:
    """A temporary path beside `path`, renamed into place when the block ends well and removed when it doesn't.

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
                f"can't write {path}: {error.strerror}. Nothing half-written is left; free some space or choose "
                "another folder, then give the same command again."
            ) from error
        raise


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: str | Path) -> Any:
    """Read a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(value: Any) -> str:
    """Hex digest (16 digits) of a JSON-able value; keys are sorted, so their order doesn't count."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
