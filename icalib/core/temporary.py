"""Names of temporary files and folders, which say whose they are, and the removal of those whose process was killed.

A killed process can't remove what it was writing, so the next one that writes to the same folder does, once.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import uuid
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

_NAME = re.compile(r"\..+\.(?P<space>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{8}\.tmp")


def temporary_beside(path: Path) -> Path:
    """Return a path in the same folder that no other process uses, on this machine or another."""
    return path.with_name(f".{path.name}.{_process_space()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether a path has a temporary name."""
    return _NAME.fullmatch(path.name) is not None


@lru_cache(maxsize=1024)
def remove_abandoned(folder: Path) -> None:
    """Remove what processes of this machine that have ended were writing; once per folder and process."""
    for name in os.listdir(folder):
        match = _NAME.fullmatch(name)
        if match and match["space"] == _process_space() and not _is_running(int(match["process"])):
            remove_path(folder / name)


def is_unused(folder: Path) -> bool:
    """Return whether a path is free for a folder: nothing is there, or only what processes write or were writing."""
    if not folder.is_dir():
        return not folder.exists()
    return all(map(is_temporary, folder.iterdir()))


def remove_path(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # another user's, or not a process id
    return True


@lru_cache(maxsize=1)
def _process_space() -> str:
    """Return a digest of what makes process ids unique: the boot of a machine, and the namespace of a container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        space = f"{boot}{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        space = socket.gethostname()
    return sha256(space.encode()).hexdigest()[:8]
