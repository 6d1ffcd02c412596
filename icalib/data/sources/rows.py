"""Rows of any file: JSONL, JSON, CSV, TSV, Parquet, Arrow, and folders of them, also those of the datasets library.

The kind of a file is detected by its content. A row is a dictionary, from the record's or the column's names to values.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.schema import Split
from icalib.data.sources.files import SPLIT_WORDS, first_line, open_bytes, plain_name, read_lines, split_in_name
from icalib.data.sources.json_text import json_records
from icalib.data.sources.records import Raw, parse_json, refuse_bad_bytes

Kind = Literal["lines", "json", "csv", "arrow"]
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Files of a folder that have rows; where it holds several kinds, the first kind is read."""
NUM_SAMPLED = 100
"""Rows by which the columns of a table are known."""
_DELIMITERS = "\t,;|"
_HEAD = 1 << 16
_BATCH_ROWS = 256
_PARQUET = b"PAR1"
_ARROW_FILE = b"ARROW1"
_ARROW_STREAM = b"\xff\xff\xff\xff"
"""How a stream of Arrow batches begins: what the datasets library saves."""


@dataclass(frozen=True)
class RowFile:
    """A file of rows; the split is None where no name says it."""

    path: Path
    split: Split | None


def row_files(path: Path) -> tuple[RowFile, ...]:
    """Return a file, or the files of a folder: those with a split in their names, else all of one kind.

    Raises:
        DataError: the folder has no such file.
    """
    if files := _row_files(path):
        return files
    raise DataError(
        f"the folder has no file that ends in {', '.join(SUFFIXES)}",
        "Name the folder that holds the files, or one file.",
        path=path,
    )


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
    """Return how a file is read, from its first bytes and its name.

    Raises:
        DataError: damaged or empty.
    """
    with open_bytes(path) as file:
        head = file.read(_HEAD)
        is_gzip = isinstance(file, gzip.GzipFile)
    if head.startswith((_PARQUET, _ARROW_FILE, _ARROW_STREAM)):
        if is_gzip:
            raise DataError("a Parquet or Arrow file inside of gzip", "Decompress it first (gunzip).", path=path)
        return "arrow"
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if not text:
        raise DataError("the file is empty", "Choose a file with dialogues or pools.", path=path)
    if plain_name(path).endswith((".jsonl", ".ndjson")):
        return "lines"
    if not text.startswith(("{", "[")):
        return "csv"
    first, _, rest = text.partition("\n")
    return "lines" if text.startswith("{") and rest.strip() and _is_json(first) else "json"


def _is_json(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


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
        return read_lines(path)
    if kind == "json":
        return json_records(path, is_record)
    return _arrow_rows(path) if kind == "arrow" else _csv_rows(path)


def _arrow_rows(path: Path) -> Iterator[Raw]:
    """Yield the rows of a Parquet file, an Arrow file or an Arrow stream; `Raw.line` is the row's number."""
    number = 0
    try:
        for batch in _batches(path):
            for row in batch.to_pylist():
                number += 1
                value = {name: _plain(field) for name, field in row.items()}
                yield Raw(path, number, json.dumps(value, default=str), value)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        cure = "Get the file again, or write it again."
        raise DataError(f"damaged ({error})", cure, path=path, line=number) from error


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        magic = file.read(len(_ARROW_FILE))
    if magic.startswith(_PARQUET):
        with pq.ParquetFile(path) as parquet:
            yield from parquet.iter_batches(batch_size=_BATCH_ROWS)
    else:
        opened = pa.ipc.open_file if magic == _ARROW_FILE else pa.ipc.open_stream
        with pa.memory_map(str(path)) as file, opened(file) as reader:
            yield from reader.read_all().to_batches(max_chunksize=_BATCH_ROWS)


def _plain(value: Any) -> Any:
    """Return times as text, as JSON and CSV have them."""
    return value.isoformat() if isinstance(value, datetime | date) else value


def _csv_rows(path: Path) -> Iterator[Raw]:
    """Yield the rows after the header with the lines where they begin; a quoted field may span several lines."""
    taken: list[Raw] = []
    cure = "Fix the file (--skip-bad cannot skip this)."

    def lines() -> Iterator[str]:
        for raw in read_lines(path):
            if raw.problem:
                raise raw.error(f"found {raw.problem}", cure)
            taken.append(raw)
            yield raw.text + "\n"

    reader = csv.reader(lines(), delimiter=delimiter_of(path))
    try:
        header = [name.strip() for name in next(reader)]
        taken.clear()
        for fields in reader:
            problem = f"{len(fields)} columns, but the header has {len(header)}" if len(fields) != len(header) else ""
            row = dict(zip(header, fields, strict=False))
            yield Raw(path, taken[0].line, "\n".join(raw.text for raw in taken), row, problem=problem)
            taken.clear()
    except csv.Error as error:
        raise DataError(f"broken CSV: {error}", cure, path=path, line=taken[-1].line) from error


def delimiter_of(path: Path) -> str:
    """Return the character that separates the columns of a file: the most frequent one of its first line."""
    return max(_DELIMITERS, key=first_line(path).count)


def row_of(raw: Raw) -> dict[str, Any]:
    """Return the row of a raw record.

    Raises:
        DataError: broken JSON, no JSON object, another number of columns than the header has.
    """
    refuse_bad_bytes(raw)
    value = parse_json(raw) if raw.value is None else raw.value
    if not isinstance(value, dict):
        raise raw.error(f"found {abbreviated(value)} where a JSON object was expected")
    return cast("dict[str, Any]", value)


def first_rows(path: Path, count: int, is_record: Callable[[Any], bool] = is_object) -> list[dict[str, Any]]:
    """Return the first rows of a file or folder: those among the first `count` records that are valid.

    For detection, so what can't be read has no rows.
    """
    rows: list[dict[str, Any]] = []
    with suppress(DataError):
        for file in _row_files(path)[:1]:
            for raw in islice(read_rows(file.path, is_record), count):
                with suppress(DataError):
                    rows.append(row_of(raw))
    return rows


def sample_rows(path: Path) -> list[dict[str, Any]]:
    """Return the valid rows among the first ones of a file or folder, by which its columns are known.

    Raises:
        DataError: an empty or damaged file, or no valid row.
    """
    file = row_files(path)[0].path
    kind_of(file)
    if rows := first_rows(path, NUM_SAMPLED):
        return rows
    raise DataError(
        f"found no valid row among the first {NUM_SAMPLED}",
        "Expected one JSON object a line, or a header and rows.",
        path=file,
    )


def own_id(row: Mapping[str, Any], *names: str) -> str:
    """Return the first id that a row has under one of some names, empty if it has none."""
    return next((str(row[name]).strip() for name in names if isinstance(row.get(name), str | int)), "")


def own_split(row: Mapping[str, Any], name: str = "split") -> Split | None:
    """Return the split that a row names, in any of the usual words; None if it names none."""
    return SPLIT_WORDS.get(str(row.get(name, "")).strip().lower())


def record_id(raw: Raw) -> str:
    """Return an id for a record without one: the file's name and the record's number in it."""
    return f"{_stem(raw.path)}-{raw.number or raw.line}"


@cache
def _stem(path: Path) -> str:
    """Return a file's name up to its first point, with its folder's where that says the split."""
    stem = plain_name(path).partition(".")[0]
    return f"{path.parent.name}-{stem}" if (path.parent / "state.json").is_file() else stem
