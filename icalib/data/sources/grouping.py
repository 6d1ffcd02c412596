"""Rows that belong together but are apart from each other in a file, brought together on disk."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from icalib.core.errors import DataError, StorageError
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import row_of


def grouped(raws: Iterable[Raw], key: Callable[[Raw], str]) -> Iterator[Raw]:
    """Yield one record for each key, in the order of first appearance; only the keys are held in memory.

    Args:
        raws: rows.
        key: returns a row's key; a row for which it raises DataError is yielded by itself, as it is.

    Yields:
        Records whose `value` is the tuple of their rows, in order; the value of each is a dictionary.

    Raises:
        StorageError: the disk refused a write.
    """
    indices: dict[str, int] = {}
    try:
        with closing(sqlite3.connect("")) as database:  # a temporary file
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("CREATE TABLE rows (key INTEGER, path BLOB, line INTEGER, text TEXT, value TEXT)")
            for raw in raws:
                try:
                    index = indices.setdefault(key(raw), len(indices))
                    value = json.dumps(row_of(raw), default=str)
                except (DataError, RecursionError):
                    yield raw
                    continue
                record = (index, os.fsencode(raw.path), raw.line, raw.text, value)
                database.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", record)
            rows = database.execute("SELECT * FROM rows ORDER BY key, rowid")
            for _, members in groupby(rows, key=itemgetter(0)):
                yield joined([_raw(*member[1:]) for member in members])
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"cannot write a temporary file: {error}. Free space, or set SQLITE_TMPDIR to a folder on another disk."
        ) from error


def joined(members: list[Raw]) -> Raw:
    """Return rows as one record, which begins where the first one does."""
    first = members[0]
    problem = next((raw.problem for raw in members if raw.problem), "")
    text = "\n".join(raw.text for raw in members)
    return Raw(first.path, first.line, text, tuple(members), number=first.number, problem=problem)


def _raw(path: bytes, line: int, text: str, value: str) -> Raw:
    return Raw(Path(os.fsdecode(path)), line, text, json.loads(value))
