"""The code that a job runs: the submitter's own, packed into one zip.

It is the project that the command is given in (the nearest folder with a pyproject.toml, at or above the current one)
and, where that is another project than icalib's own checkout, the packages icalib and tune_spaces as they are installed
here. Code only: hidden files, links that lead out of the project, what .gitignore or .rayignore name, and whatever is
data, weights or a run by its name stay here.
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
MAX_BYTES = 100 * 2**20  # the job server refuses a larger request, whatever the setting
_NUM_NAMED = 8
_NO_CODE = ("__pycache__", "node_modules")
_NO_CODE_AT_TOP = ("runs", "pools", "checkpoints", "build", "dist")  # further down these may be packages
_SUFFIXES = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".gguf", ".h5", ".pkl", ".pickle", ".npy", ".npz"),
    *(".parquet", ".arrow", ".feather", ".jsonl", ".csv", ".tsv", ".db", ".sqlite", ".journal"),
    *(".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".whl", ".so", ".pyc", ".pem", ".key"),
)

Ignores: TypeAlias = Callable[[Path], bool]


@final
@dataclass(frozen=True)
class Upload:
    """A zip of code.

    Args:
        path: the zip.
        source: the folders it was made of.
        num_files: files in it.
        num_bytes: its size.
    """

    path: Path
    source: tuple[Path, ...]
    num_files: int
    num_bytes: int


def pack(folder: Path, out: Path) -> Upload:
    """Pack the code of the project around `folder` into the zip `out`; the same code gives the same bytes.

    Raises:
        SettingError: there is more than a cluster takes; the largest files are named.
    """
    sources = code_folders(folder)
    files = {name: path for prefix, source in sources for name, path in _named_files(prefix, source)}
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            entry = ZipInfo(name)  # without the file's time, which would make each checkout another upload
            entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
            archive.writestr(entry, path.read_bytes(), ZIP_DEFLATED)
        largest = sorted(archive.infolist(), key=lambda entry: -entry.compress_size)[:_NUM_NAMED]
    size = out.stat().st_size
    if size > MAX_BYTES:
        named = ", ".join(f"{entry.filename} ({_mib(entry.compress_size)})" for entry in largest)
        raise SettingError(
            f"the code in {sources[0][1]} packs to {_mib(size)}, and a cluster takes {_mib(MAX_BYTES)}. The largest "
            f"files: {named}. Name what isn't code in a .rayignore there (written like a .gitignore); data and weights "
            "belong on storage that all nodes share."
        )
    return Upload(out, tuple(source for _, source in sources), len(files), size)


def code_folders(folder: Path) -> list[tuple[str, Path]]:
    """What travels: folders, and under which name each is found on the cluster ("" for the top)."""
    project = next((each for each in (folder.resolve(), *folder.resolve().parents) if _is_project(each)), None)
    packages = [] if project == _INSTALLED else [(name, _INSTALLED / name) for name in PACKAGES]
    return [*([("", project)] if project else []), *packages]


def _is_project(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file()


def _named_files(prefix: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in _code_files(folder, folder, []):
        yield (Path(prefix) / path.relative_to(folder)).as_posix(), path


def _code_files(folder: Path, top: Path, ignored: list[Ignores]) -> Iterator[Path]:
    # Ray's own reading of the ignore files: it has the pattern language, and users know it from `ray job submit`
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

    quiet = logging.getLogger("icalib.upload")
    ignored = [*ignored, *get_excludes_from_ignore_files(folder, include_gitignore=True, logger=quiet)]
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or any(ignores(path) for ignores in ignored):
            continue
        if path.is_dir():
            if not (path.is_symlink() or _is_no_code(path, top)):
                yield from _code_files(path, top, ignored)
        elif path.is_file() and path.suffix.lower() not in _SUFFIXES and path.resolve().is_relative_to(top):
            yield path


def _is_no_code(folder: Path, top: Path) -> bool:
    at_top = folder.parent == top and folder.name in _NO_CODE_AT_TOP
    return at_top or folder.name in _NO_CODE or (folder / "pyvenv.cfg").is_file()


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
