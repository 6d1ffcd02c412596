"""Rows of any file: JSONL, JSON, CSV, TSV, Parquet, Arrow, and folders of them, also those of the datasets library.

The kind of a file is detected by its content. A row is a dictionary, from the record's or the column's names to values.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, cast

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.schema import Split
from icalib.data.sources.arrow_rows import ARROW_FILE_MAGIC, ARROW_STREAM_MAGIC, PARQUET_MAGIC, arrow_rows
from icalib.data.sources.csv_rows import csv_rows
from icalib.data.sources.files import (
    GZIP_ERRORS,
    damaged,
    first_line,
    open_bytes,
    plain_name,
    read_lines,
    split_in_name,
)
from icalib.data.sources.json_records import json_records
from icalib.data.sources.records import Raw, parse_json

Kind = Literal["lines", "json", "csv", "arrow"]
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Files of a folder that have rows; where it holds several kinds, the first kind is read."""
DELIMITERS = "\t,;|"
NUM_SAMPLED = 100
"""Rows by which the columns of a table are known."""
_HEAD = 1 << 16


@dataclass(frozen=True)
class RowFile:
    """A file of rows; the split is None where no name says it."""

    path: Path
    split: Split | None


@dataclass(frozen=True)
class Fields:
    """A row of a CSV file."""

    header: list[str]
    fields: list[str]


def row_files(path: Path) -> tuple[RowFile, ...]:
    """Return a file, or the files of a folder: those with a split in their names, else all of one kind.

    Raises:
        DataError: the folder has no such file.
    """
    files = _row_files(path)
    if not files:
        raise DataError(
            f"the folder has no file that ends in {', '.join(SUFFIXES)}",
            "Name the folder that holds the files, or one file.",
            path=path,
        )
    return files


def _row_files(path: Path) -> tuple[RowFile, ...]:
    if path.is_file():
        return (RowFile(path, split_in_name(path)),)
    if saved := _saved_splits(path):
        return saved
    for folder in (path, path / "data"):
        files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
        for suffix in SUFFIXES:
            found = [RowFile(file, split_in_name(file)) for file in files if plain_name(file).endswith(suffix)]
            if found:
                return tuple([file for file in found if file.split] or found)
    return ()


def _saved_splits(folder: Path) -> tuple[RowFile, ...]:
    """Return the Arrow files of a folder that the datasets library has saved (`save_to_disk`)."""
    parts = [folder] if (folder / "state.json").is_file() else []
    if (folder / "dataset_dict.json").is_file():
        parts = [part for part in sorted(folder.iterdir()) if (part / "state.json").is_file()]
    return tuple(
        RowFile(file, split_in_name(part)) for part in parts for file in sorted(part.glob("*.arrow")) if file.is_file()
    )


def kind_of(path: Path) -> Kind:
    """Return how a file is read, from its first bytes.

    Raises:
        DataError: damaged or empty.
    """
    try:
        with open_bytes(path) as file:
            head = file.read(_HEAD)
            is_gzip = isinstance(file, gzip.GzipFile)
    except GZIP_ERRORS as error:
        raise damaged(path, error, 0) from error
    if head.startswith((PARQUET_MAGIC, ARROW_FILE_MAGIC, ARROW_STREAM_MAGIC)):
        if is_gzip:
            raise DataError("a Parquet or Arrow file inside of gzip", "Decompress it first (gunzip).", path=path)
        return "arrow"
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if not text:
        raise DataError("the file is empty", "Choose a file with dialogues or pools.", path=path)
    if not text.startswith(("{", "[")):
        return "lines" if plain_name(path).endswith((".jsonl", ".ndjson")) else "csv"
    if plain_name(path).endswith((".jsonl", ".ndjson")):
        return "lines"
    first, _, rest = text.partition("\n")
    return "lines" if text.startswith("{") and rest.strip() and _is_json(first) else "json"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_object(value: Any) -> bool:
    """Whether a value of a JSON document is an object."""
    return isinstance(value, dict)


def read_rows(path: Path, is_record: Callable[[Any], bool] = is_object) -> Iterator[Raw]:
    """Yield the rows of a file as raw records; `row_of` makes a dictionary of one.

    Args:
        path: the file.
        is_record: for JSON documents: whether a value inside of an object is a record.

    Raises:
        DataError: a damaged file.
    """
    kind = kind_of(path)
    if kind == "lines":
        yield from read_lines(path)
    elif kind == "json":
        yield from json_records(path, is_record)
    elif kind == "arrow":
        yield from arrow_rows(path)
    else:
        rows = csv_rows(path, delimiter_of(path))
        header = [name.strip() for name in next(rows).value]
        for raw in rows:
            yield Raw(path, raw.line, raw.text, Fields(header, raw.value))


def delimiter_of(path: Path) -> str:
    """Return the character that separates the columns of a file: the most frequent one of its first line."""
    first = first_line(path)
    return max(DELIMITERS, key=first.count)


def row_of(raw: Raw) -> dict[str, Any]:
    """Return the row of a raw record.

    Raises:
        DataError: broken JSON, no JSON object, another number of columns than the header has.
    """
    if isinstance(raw.value, Fields):
        header, fields = raw.value.header, raw.value.fields
        if len(fields) != len(header):
            raise raw.error(f"found {len(fields)} columns, but the header has {len(header)}")
        return dict(zip(header, fields, strict=True))
    value = parse_json(raw) if raw.value is None else raw.value
    if not isinstance(value, dict):
        raise raw.error(f"found {abbreviated(value)} where a JSON object was expected")
    return cast("dict[str, Any]", value)


def first_rows(path: Path, count: int, is_record: Callable[[Any], bool] = is_object) -> list[dict[str, Any]]:
    """Return the first rows of a file or folder: those among the first `count` records that are valid.

    For detection, so what can't be read has no rows.
    """
    rows: list[dict[str, Any]] = []
    try:
        for raw in chain.from_iterable(islice(read_rows(file.path, is_record), count) for file in _row_files(path)[:1]):
            rows += _row(raw)
    except DataError:
        return rows
    return rows


def sample_rows(path: Path) -> list[dict[str, Any]]:
    """Return the valid rows among the first ones of a file or folder, by which its columns are known.

    Raises:
        DataError: an empty or damaged file, or no valid row.
    """
    file = row_files(path)[0].path
    kind_of(file)
    rows = first_rows(path, NUM_SAMPLED)
    if not rows:
        raise DataError(
            f"found no valid row among the first {NUM_SAMPLED}",
            "Expected one JSON object a line, or a header and rows.",
            path=file,
        )
    return rows


def _row(raw: Raw) -> list[dict[str, Any]]:
    """Return a record's row, or nothing if it is not valid."""
    try:
        return [row_of(raw)]
    except DataError:
        return []


def record_id(raw: Raw) -> str:
    """Return an id for a record without one: the file's name and the record's number in it."""
    return f"{_stem(raw.path)}-{raw.number or raw.line}"


@cache
def _stem(path: Path) -> str:
    """Return a file's name up to its first point, with its folder's where that says the split."""
    stem = plain_name(path).partition(".")[0]
    return f"{path.parent.name}-{stem}" if (path.parent / "state.json").is_file() else stem
