"""The code that a job runs, packed into one zip archive.

It is the project in which the command is run (the nearest folder with a pyproject.toml, at or above the current one)
and, if that is not icalib's own checkout, the packages icalib and tune_spaces as they are installed here. Only code is
packed: hidden files, links out of the project, files that .gitignore or .rayignore name, and files or folders whose
names mark them as data, weights or runs are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from icalib.core.errors import SettingError

PACKAGES = ("icalib", "tune_spaces")
_INSTALLED = Path(__file__).resolve().parents[2]  # a checkout, or where pip puts packages
MAX_BYTES = 100 * 2**20  # a fixed limit of the job server
_NUM_NAMED = 8
_IGNORED_FOLDERS = ("__pycache__", "node_modules")
_IGNORED_AT_TOP = ("runs", "pools", "checkpoints", "build", "dist")  # deeper folders of these names may be packages
_IGNORED_SUFFIXES = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".gguf", ".h5", ".pkl", ".pickle", ".npy", ".npz"),
    *(".parquet", ".arrow", ".feather", ".jsonl", ".csv", ".tsv", ".db", ".sqlite", ".journal"),
    *(".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".whl", ".so", ".pyc", ".pem", ".key"),
)

Ignores: TypeAlias = Callable[[Path], bool]


@final
@dataclass(frozen=True)
class Upload:
    """A zip archive of code.

    Args:
        path: the archive.
        source: the folders that were packed.
        num_files: number of files in it.
        num_bytes: its size.
    """

    path: Path
    source: tuple[Path, ...]
    num_files: int
    num_bytes: int


def pack(folder: Path, out: Path) -> Upload:
    """Pack the code of the project around `folder` into the zip archive `out`; the same code gives the same bytes.

    Raises:
        SettingError: the archive is larger than a cluster accepts; the message names the largest files.
    """
    sources = code_folders(folder)
    files = {name: path for prefix, source in sources for name, path in _named_files(prefix, source)}
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            entry = ZipInfo(name)  # without the file's time, so that every checkout gives the same archive
            entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
            archive.writestr(entry, path.read_bytes(), ZIP_DEFLATED)
        largest = sorted(archive.infolist(), key=lambda entry: -entry.compress_size)[:_NUM_NAMED]
    size = out.stat().st_size
    if size > MAX_BYTES:
        named = ", ".join(f"{entry.filename} ({_mib(entry.compress_size)})" for entry in largest)
        raise SettingError(
            f"the code in {sources[0][1]} is {_mib(size)} when packed; a cluster accepts at most {_mib(MAX_BYTES)}. "
            f"The largest files: {named}. List what isn't code in a .rayignore there (the syntax of .gitignore); data "
            "and weights belong on storage that all nodes share."
        )
    return Upload(out, tuple(source for _, source in sources), len(files), size)


def code_folders(folder: Path) -> list[tuple[str, Path]]:
    """Return the folders to pack, each with its name in the archive ("" for the top)."""
    project = next((each for each in (folder.resolve(), *folder.resolve().parents) if _is_project(each)), None)
    packages = [] if project == _INSTALLED else [(name, _INSTALLED / name) for name in PACKAGES]
    return [*([("", project)] if project else []), *packages]


def _is_project(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file()


def _named_files(prefix: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in _code_files(folder, folder, []):
        yield (Path(prefix) / path.relative_to(folder)).as_posix(), path


def _code_files(folder: Path, top: Path, ignored: list[Ignores]) -> Iterator[Path]:
    # Ray's own parser of ignore files: users know its behaviour from `ray job submit`.
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

    quiet = logging.getLogger("icalib.upload")
    ignored = [*ignored, *get_excludes_from_ignore_files(folder, include_gitignore=True, logger=quiet)]
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or any(ignores(path) for ignores in ignored):
            continue
        if path.is_dir():
            if not (path.is_symlink() or _is_ignored_folder(path, top)):
                yield from _code_files(path, top, ignored)
        elif path.is_file() and path.suffix.lower() not in _IGNORED_SUFFIXES and path.resolve().is_relative_to(top):
            yield path


def _is_ignored_folder(folder: Path, top: Path) -> bool:
    at_top = folder.parent == top and folder.name in _IGNORED_AT_TOP
    return at_top or folder.name in _IGNORED_FOLDERS or (folder / "pyvenv.cfg").is_file()


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
