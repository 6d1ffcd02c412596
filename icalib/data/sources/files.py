"""Text files of a source, plain or gzipped: lines, the members of a JSON document, and what a file's name says."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from icalib.core.errors import DataError, SettingError
from icalib.data.schema import Split
from icalib.data.sources.records import SKIP_CURE, Raw

SPLIT_WORDS: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "development": "validation",
    "eval": "validation",
    "test": "test",
}
_SPACE = re.compile("[ \t\r\n\ufeff]*")
_DECODER = json.JSONDecoder()
_OTHER_KINDS = {
    b"\x28\xb5\x2f\xfd": "data compressed by zstd",
    b"\xfd7zXZ": "data compressed by xz",
    b"BZh": "data compressed by bzip2",
    b"PK\x03\x04": "a zip file, such as a workbook of Excel",
}


@contextmanager
def open_bytes(path: Path) -> Generator[IO[bytes]]:
    """Open a plain or gzipped file for reading; gzip is detected by its first bytes, not by the file's name."""
    with path.open("rb") as file:
        start = file.read(6)
    is_gzip = start.startswith(b"\x1f\x8b")
    for magic, kind in _OTHER_KINDS.items():
        if start.startswith(magic):
            raise DataError(f"found {kind}", "Save it as plain or gzipped text, or as Parquet.", path=path)
    try:
        with cast("IO[bytes]", gzip.open(path, "rb")) if is_gzip else path.open("rb") as opened:
            yield opened
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        cure = "Get the file again, or decompress what is left."
        raise DataError(f"damaged gzip data ({error})", cure, path=path) from error


def read_lines(path: Path, cure: str = SKIP_CURE) -> Iterator[Raw]:
    """Yield the lines of a text file as `all_lines` does; blank lines are counted and left out."""
    return (raw for raw in all_lines(path, cure) if raw.text.strip())


def all_lines(path: Path, cure: str = SKIP_CURE) -> Iterator[Raw]:
    """Yield the lines of a plain or gzipped text file with their numbers, blank ones too.

    Bytes that aren't UTF-8 become lone surrogates, so that one record that is not valid doesn't stop the file.
    """
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
            yield Raw(path, number, text.removeprefix("\ufeff") if number == 1 else text, cure=cure)


def first_line(path: Path) -> str:
    """Return the first line of a file that isn't blank."""
    for raw in read_lines(path):
        return raw.text
    raise DataError("the file is empty", "Choose a file with records.", path=path)


def plain_name(path: Path) -> str:
    """Return a file's name in lower case, without .gz."""
    return path.name.lower().removesuffix(".gz")


def split_in_name(path: Path) -> Split | None:
    """Return the split that is a word of its own in a file's name, e.g. validation of `merged_dev_intents.json`."""
    words = re.split(r"[^a-z]+", plain_name(path))
    return next((split for word, split in SPLIT_WORDS.items() if word in words), None)


def required_split(path: Path) -> Split:
    """Return the split in the name of a file of ready pools, or raise SettingError."""
    if split := split_in_name(path):
        return split
    raise SettingError(
        f"{path}: the file name has no split. The name of a file of ready pools must say its split. "
        'Put "train", "valid" (or "dev") or "test" into the name.'
    )


def files_in(path: Path, *suffixes: str) -> tuple[Path, ...]:
    """Return a file itself, or a folder's files of the first of these kinds that it has, maybe none; only those with a
    split in their names where these have a training split or several splits. Hidden ones (macOS's ._x.csv) aren't read.
    """
    if path.is_file():
        return (path,)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else []
    files = [file for file in files if not file.name.startswith(".")]
    for suffix in suffixes:
        if found := [file for file in files if plain_name(file).endswith(suffix)]:
            splits = {split_in_name(file) for file in found} - {None}  # one may be a word of a title: test-team.csv
            has_splits = "train" in splits or len(splits) > 1
            return tuple(file for file in found if split_in_name(file) or not has_splits)
    return ()


def required_files(path: Path, *suffixes: str) -> tuple[Path, ...]:
    """Return `files_in`, or raise DataError if there are none."""
    if files := files_in(path, *suffixes):
        return files
    raise DataError(
        f"the folder has no file that ends in {', '.join(suffixes)}",
        "Name the folder that holds the files, or one file.",
        path=path,
    )


def json_members(path: Path) -> Iterator[Raw]:
    """Yield the members of a file that is one big JSON object; `Raw.value` is (key, value)."""
    return _json_values(path, "{", "}")


def json_items(path: Path) -> Iterator[Raw]:
    """Yield the items of a file that is one big JSON array."""
    return _json_values(path, "[", "]")


def _json_values(path: Path, opening: str, closing: str) -> Iterator[Raw]:
    """Yield what an object or array holds, each with its own text, the line where it begins, and its index, from 1.

    Broken JSON can't be skipped: where the next value begins is unknown.
    """
    with open_bytes(path) as file:
        text = file.read().decode("utf-8", "surrogateescape")

    def skip(at: int, mark: str = "") -> int:
        """Return the position after white space, a mark that must be there, and white space."""
        at = cast("re.Match[str]", _SPACE.match(text, at)).end()
        if not text.startswith(mark, at):
            raise json.JSONDecodeError(f"expected {mark}", text, at)
        return skip(at + len(mark)) if mark else at

    number, line, counted = 0, 1, 0
    try:
        at = skip(0, opening)
        while not text.startswith(closing, at):
            key, at = _DECODER.raw_decode(text, at) if opening == "{" else ("", at)
            start = skip(at, ":") if opening == "{" else at
            number, line, counted = number + 1, line + text.count("\n", counted, start), start
            value, end = _DECODER.raw_decode(text, start)
            yield Raw(path, line, text[start:end], (key, value) if opening == "{" else value, number=number)
            at = skip(end)
            at = at if text.startswith(closing, at) else skip(at, ",")
        if (at := skip(at, closing)) < len(text):
            raise json.JSONDecodeError(f"expected nothing after {closing}", text, at)
    except (ValueError, RecursionError) as error:
        found, where = (error.msg, error.lineno) if isinstance(error, json.JSONDecodeError) else (str(error), line)
        cure = "Fix the file or get it again (prepare's --skip-bad can't skip this)."
        raise DataError(f"broken JSON: {found}", cure, path=path, line=where) from None
