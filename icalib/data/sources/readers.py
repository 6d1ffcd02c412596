"""Open a source of any known format, which is detected or named."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError, SettingError
from icalib.core.imports import Extensions, failed
from icalib.core.text import abbreviated, short_repr
from icalib.data.sources.files import first_line
from icalib.data.sources.records import Reader, Source, refuse_bad_bytes
from icalib.data.sources.rows import kind_of, read_rows, row_files, row_of

READERS = Extensions(
    Reader,
    setting="--format",
    group="icalib.readers",
    builtin={
        "jsonl": "icalib.data.sources.messages:jsonl",
        "icast": "icalib.data.sources.papers:icast",
        "udc": "icalib.data.sources.papers:udc",
        "mantis-tsv": "icalib.data.sources.papers:mantis_tsv",
        "mantis": "icalib.data.sources.papers:mantis",
        "msdialog": "icalib.data.sources.papers:msdialog",
        "messages": "icalib.data.sources.messages:messages",
        "ranking": "icalib.data.sources.ranking:ranking",
        "table": "icalib.data.sources.table:table",
    },
)
"""All readers. The order decides the format of a folder with files of several formats."""
NO_OPTIONS: Mapping[str, Any] = {}
_CURE = (
    "Records of one JSON object become lines with jq -c '.[]', those of a list in it with jq -c '.NAME[]'. "
    "A table whose columns have other names is read with --columns id=NAME,sender=NAME,text=NAME (one message a row) "
    "or --columns query=NAME,positive=NAME,negative=NAME (ready-made ranking data). --format names a format, or the "
    "import path of a reader of your own (my_lab.module:name)."
)


def open_source(path: str | Path, format: str | None = None, options: Mapping[str, Any] = NO_OPTIONS) -> Source:
    """Open a file or folder of dialogues or pools, plain or gzipped.

    `format` is a reader's name or import path; None detects it. `options` are `speakers` and `columns` of
    `PrepareSettings`. A SettingError says that there is no such reader or the format can't be detected, a DataError
    that nothing can be read.
    """
    path = Path(path)
    if format:
        READERS.load(format)  # raises before anything is read
    try:
        if not path.exists():
            raise DataError("no such file or folder", "Check the path.", path=path)
        name = format or _detected(path, options.get("columns", {}))
        source = _opened(name, path, options)
        for file in source.files:
            first_line(file)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", "Check its permissions.", path=path) from error
    return replace(source, reader=name, unread=_unread(path, source))


def _opened(name: str, path: Path, options: Mapping[str, Any]) -> Source:
    """Open a source by a reader; a SettingError says that one from outside failed or returned something else."""
    reader = READERS.load(name)
    given = {option: options.get(option, {}) for option in reader.options}
    if name in READERS.builtin:
        return reader.open(path, **given)
    try:
        source: Any = reader.open(path, **given)
    except OSError:
        raise
    except Exception as error:
        raise failed(f"the reader `{name}` failed", error) from error
    streams = ("dialogues", "pools", "answers")
    if not (isinstance(source, Source) and all(callable(getattr(source, stream)) for stream in streams)):
        raise SettingError(
            f"the reader `{name}` returned {short_repr(source)}, expected a Source whose dialogues, pools and answers "
            "are functions that stream them."
        )
    return source


def _unread(path: Path, source: Source) -> tuple[str, ...]:
    """Return the names of a folder's files and folders that a source leaves out; hidden ones aren't named."""
    files = sorted(path.iterdir()) if path.is_dir() else []
    read = {part for file in source.files for part in (file.resolve(), file.resolve().parent)}
    left_out = (file for file in files if file.resolve() not in read)
    return tuple(file.name for file in left_out if not file.name.startswith("."))


def _detected(path: Path, columns: Collection[str]) -> str:
    """Return the name of the first reader that detects its format, else the one that the named columns are of."""
    if path.is_file():
        first_line(path)
    damaged: DataError | None = None
    for name in READERS.names():
        try:
            if READERS.load(name).detects(path):
                return name
        except DataError as error:  # perhaps of another format
            damaged = damaged or error
    if columns:
        return "ranking" if {"query", "positive", "negative", "passage", "label"} & {*columns} else "table"
    if damaged:
        raise damaged
    raise SettingError(
        f"{path}: the format is unknown. Tried: {', '.join(READERS.names())}. The first record {_first_record(path)}. "
        f"{_CURE}"
    )


def _first_record(path: Path) -> str:
    """Say what a file of unknown format begins with; DataError where it is unknown since that is damaged or missing."""
    file = row_files(path)[0]
    raw = next(read_rows(file), None)
    if raw is None:
        if kind_of(file) == "parquet":
            raise DataError("found no rows", "Choose a file with records.", path=file)
        if len(header := re.split(r"[\t,;|]", first_line(file))) > 1:
            raise DataError(
                f"found a header of {len(header)} columns and no rows",
                "Expected a row for each message or query; --format names another format.",
                path=file,
            )
        return f"has the text {abbreviated(first_line(file))}"
    refuse_bad_bytes(replace(raw, cure="Fix the record, or name the format with --format"))
    try:
        return f"has the fields {', '.join(row_of(raw))[:300]}"
    except DataError as error:
        return f"can't be read: {error.found}"
