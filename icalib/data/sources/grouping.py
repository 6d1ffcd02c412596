"""Rows that belong together but are apart from each other in a file, brought together on disk."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError, StorageError
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import row_of


@contextmanager
def temporary_database() -> Generator[sqlite3.Connection]:
    """Yield an empty database in a temporary file, which is removed when the block ends.

    Raises:
        StorageError: the disk refused a write.
    """
    database = sqlite3.connect("")
    try:
        database.execute("PRAGMA journal_mode = OFF")
        yield database
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"cannot write a temporary file: {error}. Free space, or set SQLITE_TMPDIR to a folder on another disk."
        ) from error
    finally:
        database.close()


def grouped(raws: Iterable[Raw], key: Callable[[Raw], str]) -> Iterator[Raw]:
    """Yield one record for each key, in the order of first appearance; only the keys are held in memory.

    Args:
        raws: rows.
        key: returns a row's key; a row for which it raises DataError is yielded by itself, as it is.

    Yields:
        Records whose `value` is the tuple of their rows, in order; the value of each is a dictionary.
    """
    with temporary_database() as database:
        database.execute("CREATE TABLE rows (place INTEGER, path BLOB, line INTEGER, text TEXT, value TEXT)")
        places: dict[str, int] = {}
        for raw in raws:
            try:
                place = places.setdefault(key(raw), len(places))
                value = json.dumps(row_of(raw), default=str)
            except (DataError, RecursionError):
                yield raw
                continue
            record = (place, os.fsencode(raw.path), raw.line, raw.text, value)
            database.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", record)
        rows = database.execute("SELECT * FROM rows ORDER BY place, rowid")
        for _, members in groupby(rows, key=itemgetter(0)):
            yield joined([_raw(*member[1:]) for member in members])


def joined(members: list[Raw]) -> Raw:
    """Return rows as one record, which begins where the first one does."""
    first = members[0]
    return Raw(first.path, first.line, "\n".join(raw.text for raw in members), tuple(members), number=first.number)


def _raw(path: bytes, line: int, text: str, value: str) -> Raw:
    parsed: Any = json.loads(value)
    return Raw(Path(os.fsdecode(path)), line, text, parsed)
