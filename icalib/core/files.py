"""Atomic writes of files, and digests."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from icalib.core.errors import DamagedFileError, IcalibError, SettingError, StorageError

_RUST_ERROR = re.compile(r"\(os error (\d+)\)")
_REFUSED = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
)
_OWNERS = 0o600

FOLDER_NAME = r"^\w[\w.-]*$"  # pattern of the folder names that users may choose: no paths, and nothing hidden


@contextmanager
def atomic_write(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary path beside a file that is renamed to it if the block succeeds, and removed if it fails.

    What killed processes left there is removed first. A symbolic link stays one. A StorageError says that `path` is a
    folder, a pipe or a device, or that the disk is full or can't be written.
    """
    path = Path(path)
    with _explained(path):
        check_file(path)
        with _replaced(path) as temporary:
            yield temporary


@contextmanager
def atomic_dir(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary folder as `atomic_write` does; a SettingError if `path` is a file or a folder with content."""
    check_empty(Path(path))
    with replaced_dir(path) as temporary:
        yield temporary


@contextmanager
def replaced_dir(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary folder as `atomic_write` does; by its end, the block has removed what was at `path`."""
    path = Path(path)
    with _explained(path), _replaced(path) as temporary:
        temporary.mkdir()
        yield temporary


@contextmanager
def _replaced(path: Path) -> Generator[Path, None, None]:
    if not path.name:
        raise StorageError(f"can't write '{path}': it exists. Name a new folder.")
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary = temporary_beside(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    try:
        yield temporary
        give_usual_mode(temporary)
        os.replace(temporary, path)
    finally:
        remove_path(temporary)


def give_usual_mode(path: Path) -> None:
    """Give the files at a path that are their owner's alone, as safetensors makes its, the mode that the umask says."""
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) == _OWNERS:
            file.chmod(_usual_mode())


@lru_cache(maxsize=1)
def _usual_mode() -> int:
    with tempfile.TemporaryDirectory() as folder:  # to ask for the umask, all threads would be given another one
        path = Path(folder) / "file"
        path.touch()
        return stat.S_IMODE(path.stat().st_mode)


def check_file(path: Path) -> None:
    """Refuse to write a file where a folder, a pipe or a device is."""
    # /dev/stdout and the like may lead to a file that has more than this output
    is_stream = os.path.realpath(path.parent) in ("/dev", f"/proc/{os.getpid()}/fd")
    if is_stream or (os.path.exists(path) and not os.path.isfile(path)):  # False where it can't be known
        kind = "a folder" if os.path.isdir(path) else "a pipe or a device"
        raise StorageError(f"can't write '{path}': it is {kind}. Name a file.")


def check_other_file(out: Path, source: Path, what: str) -> None:
    """Refuse an output that is the input itself, `what` in words, which it would replace."""
    if out.exists() and source.exists() and out.samefile(source):
        raise SettingError(f"{out} is the {what} itself. Name another file for the output.")


def check_empty(path: Path) -> None:
    """Refuse a path that can't be written as a whole folder: a file, or a folder that isn't empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SettingError(
            f"{path} exists and is not an empty folder; nothing in it is overwritten. Choose another folder, or remove "
            "it first."
        )


@contextmanager
def _explained(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except Exception as error:
        number = system_error(error)
        if number in _REFUSED:
            is_in_the_way = number in (errno.EEXIST, errno.ENOTDIR)
            cure = (
                "A part of the path is a file: choose another" if is_in_the_way else "Free some space or choose another"
            )
            raise StorageError(
                f"can't write {path}: {os.strerror(number)}. Nothing half-written is left. {cure} folder, then run the "
                "same command again."
            ) from error
        raise


def system_error(error: BaseException | None) -> int | None:
    """Return the number of the operating system's error behind an exception, also in Rust's texts; None without one."""
    while error is not None and not isinstance(error, IcalibError):
        found = _RUST_ERROR.search(str(error))
        if isinstance(error, OSError) or found:
            return int(found[1]) if found else cast("OSError", error).errno
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Return what `write_json` writes."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def reading(path: str | Path) -> Generator[None, None, None]:
    """Turn whatever a parser raises on a damaged file into one DamagedFileError."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(path, "is missing") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise DamagedFileError(path, f"can't be read ({' '.join(str(error).split()):.200})") from error


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; a DamagedFileError if it doesn't, or lacks a key that is asked for."""
    value = _parsed(path)
    if not isinstance(value, dict):
        raise DamagedFileError(path, f"holds {value!r:.40} instead of a JSON object")
    return cast("dict[str, Any]", value)


def read_json_list(path: str | Path) -> list[dict[str, Any]]:
    """Read a JSON file that holds a list of objects; errors are those of `read_json`."""
    value = _parsed(path)
    if not (isinstance(value, list) and all(isinstance(item, dict) for item in cast("list[Any]", value))):
        raise DamagedFileError(path, f"holds {value!r:.40} instead of a list of JSON objects")
    return cast("list[dict[str, Any]]", value)


class FileObject(dict[str, Any]):
    """A mapping that was read from a file, which it names where a key is missing."""

    path: str | Path | None = None

    @classmethod
    def of(cls, path: str | Path, values: Iterable[tuple[str, Any]]) -> FileObject:
        """Return the mapping with some pairs, which were read from `path`."""
        made = cls(values)
        made.path = path
        return made

    def __missing__(self, key: str) -> Any:
        if self.path is None:  # a copy
            raise KeyError(key)
        raise DamagedFileError(self.path, f"has no `{key}`")


def _parsed(path: str | Path) -> Any:
    with reading(path):
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=lambda pairs: FileObject.of(path, pairs))


_digests: dict[tuple[int, int, int, int], str] = {}
_SETTLED_S = 2.0  # another write within the clock's resolution would leave size and time as they are


def is_file(path: Path) -> bool:
    """Return whether a path that a user has named is a file; one that is too long is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, read once in a process: known by inode, size and modification time."""
    with Path(path).open("rb") as file:
        facts = os.fstat(file.fileno())
        key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if key in _digests:
            return _digests[key]
        is_settled = time.time() - facts.st_mtime > _SETTLED_S
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if is_settled:
            _digests[key] = digest
        return digest


def content_digest(value: Any) -> str:
    """Return the hex digest (16 digits) of a JSON-able value; the order of keys doesn't count."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    """Remove a file or a folder, if it is there; a folder whole, so that a killed process leaves none with parts."""
    if path.is_dir():
        with suppress(OSError):  # a mount, which has to stay
            path = path if is_temporary(path) or path.is_symlink() else path.rename(temporary_beside(path))
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
    return hashlib.sha256(space.encode()).hexdigest()[:8]
