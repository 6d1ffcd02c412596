"""The code that a job runs, packed into one zip archive.

Ray would pack a project by itself, but uncompressed, with hidden files and links out of it, and would have its size
refused only after sending it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final
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

    The project is the nearest folder with a pyproject.toml, at or above `folder`. If that is not icalib's own checkout,
    the packages icalib and tune_spaces are added as they are installed here. Left out are hidden files, links out of
    the project, git's submodules, what git ignores, and what its name marks as data, weights, keys or runs.

    Raises:
        SettingError: the archive is larger than a cluster accepts; the message names the largest files.
    """
    sources = code_folders(folder)
    files = {(Path(prefix) / name).as_posix(): source / name for prefix, source in sources for name in _code(source)}
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
            f"The largest files: {named}. Move what isn't code out of the project, or have git ignore it; data and "
            "weights belong on storage that all nodes share."
        )
    return Upload(out, tuple(source for _, source in sources), len(files), size)


def code_folders(folder: Path) -> list[tuple[str, Path]]:
    """Return the folders to pack, each with its name in the archive ("" for the top)."""
    above = (folder.resolve(), *folder.resolve().parents)
    project = next((each for each in above if (each / "pyproject.toml").is_file()), None)
    packages = [] if project == _INSTALLED else [(name, _INSTALLED / name) for name in PACKAGES]
    return [*([("", project)] if project else []), *packages]


def _code(folder: Path) -> Iterator[Path]:
    """Yield the relative paths of a folder's code."""
    found = _known_to_git(folder) or [path.relative_to(folder) for path in folder.rglob("*")]
    environments = {name.parent for name in found if name.name == "pyvenv.cfg"} - {Path()}
    for name in found:
        path = folder / name
        is_inside = path.is_file() and path.resolve().is_relative_to(folder)
        if is_inside and _is_code(name) and environments.isdisjoint(name.parents):
            yield name


def _known_to_git(folder: Path) -> list[Path]:
    """Return the files that git tracks or would add; none where git isn't used, or ignores the folder itself."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [Path(name) for name in listed.split("\0") if name]


def _is_code(name: Path) -> bool:
    hidden = any(part.startswith(".") or part in _IGNORED_FOLDERS for part in name.parts)
    return not (hidden or name.parts[0] in _IGNORED_AT_TOP or name.suffix.lower() in _IGNORED_SUFFIXES)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
