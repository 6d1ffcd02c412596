"""Ways in which files are damaged: by a full disk, a failing one, or a hand."""

from __future__ import annotations

import resource
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Damage: TypeAlias = Callable[[Path], object]


def truncate(path: Path) -> None:
    _replace(path, path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    _replace(path, b"")


def zero_a_block(path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = len(data) // 3
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    _replace(path, bytes(data))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    _replace(path, bytes(data))


def write_garbage(path: Path) -> None:
    _replace(path, bytes(range(256)) * 3)


def write_other_json(path: Path) -> None:
    _replace(path, b"[1]\n")


def delete(path: Path) -> None:
    path.unlink()


DAMAGES: Mapping[str, Damage] = {
    damage.__name__: damage
    for damage in (truncate, empty, zero_a_block, flip_a_bit, write_garbage, write_other_json, delete)
}


def _replace(path: Path, data: bytes) -> None:
    """Write in place, as a disk does; a file that is linked from elsewhere is damaged there, too."""
    with path.open("r+b") as file:
        file.truncate()
        file.write(data)


@contextmanager
def largest_file(num_bytes: int) -> Generator[None]:
    """A disk on which no file can become larger, so that writes fail in the middle, in any language."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
