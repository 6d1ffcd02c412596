"""Rows of any file, detected by its content: JSONL, a JSON array, CSV, TSV, Parquet, and folders of them."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import DataError, SettingError
from icalib.core.text import abbreviated, listed
from icalib.data.schema import Split
from icalib.data.sources.files import (
    SPLIT_WORDS,
    all_lines,
    files_in,
    first_line,
    json_items,
    open_bytes,
    plain_name,
    read_lines,
    required_files,
    split_in_name,
)
from icalib.data.sources.records import Raw, parse_json, refuse_bad_bytes

Kind = Literal["lines", "object", "json", "csv", "parquet"]
SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Files of a folder that have rows; where it holds several kinds, the first kind is read."""
_BATCH_ROWS = 256
_JSON = re.compile(r"""\s*(\[\s*(["\[{\]\d]|-\d|true|false|null)|\{\s*["\[{\d])""")
_ARRAY = re.compile(r"""\[\s*["\[{\]]""")  # unlike [09:05] <Ann> of a chat's log
MAX_FIELD = 1 << 24
"""Characters of a CSV's field, such as a pasted log; Python's own limit is 2¹⁷."""


def row_files(path: Path) -> tuple[Path, ...]:
    """Return a file, or a folder's files of the first kind that it has; DataError if it has none."""
    return required_files(path, *SUFFIXES)


def kind_of(path: Path) -> Kind:
    """Return how a file is read, from its first bytes and its name; DataError if it is damaged or empty."""
    with open_bytes(path) as file:
        head = file.read(1 << 16)
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if not text:
        raise DataError("the file is empty", "Choose a file with records.", path=path)
    if text.split("\n", 1)[0].rstrip() == "{":
        return "object"
    if text.startswith("{") or plain_name(path).endswith((".jsonl", ".ndjson")):
        return "lines"
    return "json" if _ARRAY.match(text) else "csv"


def read_rows(path: Path) -> Iterator[Raw]:
    """Yield the rows of a file as raw records; `row_of` makes a dictionary of one."""
    readers = {"lines": read_lines, "object": _object, "json": json_items, "csv": _csv_rows, "parquet": _parquet_rows}
    return readers[kind_of(path)](path)


def _object(path: Path) -> Iterator[Raw]:
    """Yield a JSON object over several lines, such as one chat of Telegram's or Discord's."""
    with open_bytes(path) as file:
        text = file.read().decode("utf-8", "surrogateescape")
    yield Raw(path, 1, text.removeprefix("\ufeff"), number=1)


def _parquet_rows(path: Path) -> Iterator[Raw]:
    """Yield the rows of a Parquet file; `Raw.line` is the row's number."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            check_distinct(path, 0, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    value = as_json(row)
                    yield Raw(path, number, json.dumps(value, default=str), value)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        cure = "Get the file again, or write it again; Parquet isn't read from gzip."
        raise DataError(f"damaged ({error})", cure, path=path, line=number) from error


def as_json(value: Any) -> Any:
    """Return a value of Parquet as JSON has it: times are ISO 8601, and texts that their writer called bytes texts."""
    if isinstance(value, dict):
        return {name: as_json(field) for name, field in value.items()}
    if isinstance(value, list):
        return list(map(as_json, value))
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
    return value.isoformat() if isinstance(value, datetime | date) else value


def _csv_rows(path: Path) -> Iterator[Raw]:
    """Yield the rows after the header with the lines where they begin; a quoted field may span several lines."""
    csv.field_size_limit(MAX_FIELD)
    taken: list[Raw] = []
    cure = (
        "Write a quote inside a quoted field twice, quote a field that begins with a quote or has a carriage return, "
        "and end lines with a line feed (prepare's --skip-bad can't skip this)."
    )

    def lines() -> Iterator[str]:
        for raw in all_lines(path):
            if taken or raw.text.strip():  # a blank line between rows is none, and in a quoted field it is text
                taken.append(raw)
                yield raw.text + "\n"

    reader = csv.reader(lines(), delimiter=delimiter_of(first_line(path)), strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        for raw in taken:
            refuse_bad_bytes(replace(raw, cure="A header can't be skipped"))
        check_distinct(path, taken[0].line, filter(None, header))  # spreadsheets leave columns without a name behind
        taken.clear()
        for fields in reader:
            if not any(map(str.strip, fields)):  # spreadsheets leave rows without a value behind, too
                taken.clear()
                continue
            problem = f"{len(fields)} columns, but the header has {len(header)}" if len(fields) != len(header) else ""
            row = dict(zip(header, fields, strict=False))
            yield Raw(path, taken[0].line, "\n".join(raw.text for raw in taken), row, problem=problem)
            taken.clear()
    except csv.Error as error:
        for raw in taken:  # the zero bytes of UTF-16 break a line in two for `csv`
            refuse_bad_bytes(replace(raw, cure="prepare's --skip-bad can't skip this"))
        raise DataError(f"broken CSV: {error}", cure, path=path, line=taken[0].line) from error


def check_distinct(path: Path | str, line: int, names: Iterable[str]) -> None:
    """Refuse a table of which two columns have one name: rows as objects have only the last one's cell."""
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(
                f"{count} columns {f'are named `{name}`' if name else 'have no name'}",
                "Expected another name for each: rename them, or remove all but one.",
                path=path,
                line=line,
            )


def delimiter_of(header: str) -> str:
    """Return the delimiter of a CSV or TSV by its first line."""
    return max("\t,;|", key=header.count)


def row_of(raw: Raw) -> dict[str, Any]:
    """Return the row of a raw record; a DataError if it isn't one."""
    refuse_bad_bytes(raw)
    return unchecked_row(raw)


def unchecked_row(raw: Raw) -> dict[str, Any]:
    """Return what can be read of a row that `row_of` may refuse; a DataError if that is no row.

    It says which conversation or query the row belongs to, which must not go on without it.
    """
    value = parse_json(raw) if raw.value is None else raw.value
    if not isinstance(value, dict):
        raise raw.error(f"found {abbreviated(value)} where a JSON object was expected")
    row = cast("dict[str, Any]", value)
    row.pop("", None)  # the index that pandas writes; readers look for "" where a table lacks a column
    return row


def first_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the valid rows among the first `count` records of a file or folder."""
    return _first_rows(files_in(path, *SUFFIXES), count)[0]


def _first_rows(files: Iterable[Path], count: int) -> tuple[list[dict[str, Any]], list[DataError]]:
    """Return the valid rows among the first records, and what is wrong with the others."""
    rejected: list[DataError] = []
    rows: list[dict[str, Any]] = []
    for raw in islice(chain.from_iterable(map(read_rows, files)), count):  # the first file may have no rows
        try:
            rows.append(row_of(raw))
        except DataError as error:
            rejected.append(error)
    return rows, rejected


def own_id(row: Mapping[str, Any], *names: str) -> str:
    """Return the first id that a row has under one of some names, empty if it has none."""
    return next((id_text(row[name]) for name in names if _is_id(row.get(name))), "")


def id_text(value: Any) -> str:
    """Return an id as text; 17.0 is 17, as columns of integers with gaps are of floats in some files."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _is_id(value: Any) -> bool:
    """Whether a value is a text or number; a number may be a float, as columns of integers with gaps are read so."""
    return isinstance(value, str | int | float) and value == value


def split_of_row(raw: Raw, row: Mapping[str, Any], column: str = "split") -> Split | None:
    """Return the split that a row has, in any of the usual words, else that in its file's name; None if neither has
    one, and a DataError if the row's is another word.
    """
    given = row.get(column)
    word = "" if given is None or given != given else str(given).strip().lower()
    if not word:
        return split_in_name(raw.path)
    if word not in SPLIT_WORDS:
        cure = f"Expected one of {', '.join(SPLIT_WORDS)}, or nothing. {raw.cure}."
        raise raw.error(f"found {abbreviated(given)} as split", cure, column)
    return SPLIT_WORDS[word]


def split_of_rows(rows: Iterable[tuple[Raw, Mapping[str, Any]]], column: str) -> Split | None:
    """Return the split of rows that belong together, which some of them may lack; a DataError if they have two."""
    found: Split | None = None
    for raw, row in rows:
        split = split_of_row(raw, row, column)
        if found and split and split != found:
            raise raw.error(
                f"found {split} as split, but another row of the same conversation or query has {found}",
                f"Give its rows one split, or ignore the column with --columns split= (no name). {raw.cure}.",
                column,
            )
        found = found or split
    return found


def record_id(raw: Raw) -> str:
    """Return an id for a record without one: the file's name without its suffix, and the record's number in it."""
    name = plain_name(raw.path)
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return f"{name.removesuffix(suffix)}-{raw.number or raw.line}"


NUM_SAMPLED = 100
"""Rows by which the columns of a table are known."""


def sampled(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the valid rows among the first ones of a file, or of each split of a folder, and the names of their
    columns.
    """
    files: dict[Split | None, list[Path]] = {}
    for file in row_files(path):
        files.setdefault(split_in_name(file), []).append(file)
    found = [_first_rows(members, NUM_SAMPLED) for members in files.values()]
    rows = [row for valid, _ in found for row in valid]
    if not rows:
        rejected = [error for _, errors in found for error in errors]
        if rejected:
            raise rejected[0]
        cure = "Expected one JSON object a line, or a header and rows."
        raise DataError(f"found no valid row among the first {NUM_SAMPLED}", cure, path=row_files(path)[0])
    return rows, list(dict.fromkeys(name for row in rows for name in row))


def guessed_columns(
    names: Iterable[str], common: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the table's own name of each column, by what it is; columns that aren't found are left out.

    Of the `common` names the most telling come first; case, spaces and signs don't count. The user's choice is `given`,
    an empty name of which means none.
    """
    if odd := [column for column in given if column not in common]:
        raise SettingError(
            f"--columns {odd[0]}={given[odd[0]]}: expected one of {', '.join(common)} before the sign =."
        )
    by_plain = {plain_column(name): name for name in reversed(list(names))}
    found: dict[str, str] = {}
    for column, candidates in common.items():
        free = [by_plain[name] for name in candidates if name in by_plain and by_plain[name] not in found.values()]
        if column in given:
            found[column] = given[column]
        elif free:
            found[column] = free[0]
    return {column: name for column, name in found.items() if name}


def plain_column(name: str) -> str:
    """Return a column's name in lower case without spaces and signs."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


TIMES = (
    "timestamp", "ts", "time", "createdat", "created", "createdon", "createdutc", "createddate", "createddatetime",
    "sentat", "sent", "senton", "sentdate", "datetime", "date", "timestampms", "turn", "position",
)  # fmt: skip
"""Common names of times, as `guessed_columns` has them."""


def parsed_time(value: Any) -> float | None:
    """Return a time as a number: of a number (also as text) or of ISO 8601; None for any other."""
    text = str(value).strip()
    with suppress(ValueError):
        number = float(text)
        return number if number == number else None
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return None


def time_form(value: Any) -> str:
    """Return the form of a time that `parsed_time` knows: times of two forms can't be compared."""
    with suppress(ValueError):
        float(str(value))
        return "number"
    return "with zone" if datetime.fromisoformat(str(value).strip()).tzinfo else "without zone"


def falls(times: Iterable[float]) -> int:
    """Return how many times more often times fall than they rise, from one to the next."""
    return sum((after < before) - (after > before) for before, after in pairwise(times))


def in_order(times: Sequence[float]) -> list[int]:
    """Return the indices of times in rising order; equal ones are turned round if the newest come first."""
    indices = range(len(times))
    return sorted(reversed(indices) if falls(times) > 0 else indices, key=times.__getitem__)


def json_in(value: Any) -> Any:
    """Return the list or object that a text is in JSON, as a table's cell has it; any other value as it is."""
    if isinstance(value, str) and _JSON.match(value):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def check_columns(
    files: Sequence[Path],
    names: list[str],
    found: Mapping[str, str],
    required: Iterable[str],
    given: Mapping[str, str],
    also_read: Iterable[str] = (),
) -> str:
    """Return the line that shows which columns are read, and which aren't; SettingError where the choice lacks a
    required or names an unknown one, or one of the tables lacks a required one.
    """
    missing = [column for column in required if column not in found]
    unknown = [name for name in given.values() if name and name not in names]
    if unknown or missing:
        problem = f"no column named {', '.join(unknown)}" if unknown else f"no column found for {', '.join(missing)}"
        example = ",".join(f"{column}=NAME" for column in missing or given)
        raise SettingError(
            f"{files[0]}: {problem}. The columns are {', '.join(map(str, names))}. Name the right ones with "
            f"--columns {example}."
        )
    for file in files:
        _check_table(file, {column: found[column] for column in required})
    shown = ", ".join(f"{column}={name}" for column, name in found.items())
    guessed = [column for column in found if column not in given]
    line = f"columns: {shown}" + (f" ({', '.join(guessed)} guessed; --columns changes them)" if guessed else "")
    unread = [name for name in names if name not in {*found.values(), *also_read}]
    return line + (f"; not read: {listed(unread)}" if unread else "")


def _check_table(path: Path, required: Mapping[str, str]) -> None:
    """Refuse a CSV or Parquet file that lacks a required column, all rows of which would count as empty."""
    first = next(read_rows(path), None) if kind_of(path) in ("csv", "parquet") else None
    for column, name in required.items():
        if first and not first.problem and name not in first.value:
            raise SettingError(
                f"{path}: no column named {name}, which other files have as {column}. The columns are "
                f"{', '.join(first.value)}. Give the columns of all files the same names, or prepare one file."
            )
