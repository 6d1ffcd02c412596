"""Which column of a table is what: named by the user, or guessed from common names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError, SettingError
from icalib.data.sources.rows import first_rows, row_files

NO_COLUMNS: Mapping[str, str] = {}
NUM_SAMPLED = 100
"""Rows by which the columns of a table are known."""


def sampled(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the valid rows among the first ones of a file or folder, and the names of their columns."""
    rows, cure = first_rows(path, NUM_SAMPLED), "Expected one JSON object a line, or a header and rows."
    if not rows:
        raise DataError(f"found no valid row among the first {NUM_SAMPLED}", cure, path=row_files(path)[0])
    return rows, list(dict.fromkeys(name for row in rows for name in row))


def guessed_columns(
    names: Iterable[str], common: Mapping[str, tuple[str, ...]], given: Mapping[str, str] = NO_COLUMNS
) -> dict[str, str]:
    """Return the table's own name of each column, by what it is; columns that aren't found are left out.

    Of the `common` names the most telling come first; case, spaces and signs don't count. The user's choice is `given`,
    an empty name of which means none.

    Example:
        >>> guessed_columns(["Ticket ID", "Body"], {"id": ("ticketid",), "text": ("text", "body")})
        {'id': 'Ticket ID', 'text': 'Body'}
    """
    if odd := [column for column in given if column not in common]:
        raise SettingError(
            f"--columns {odd[0]}={given[odd[0]]}: expected one of {', '.join(common)} before the sign =."
        )
    by_plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in reversed(list(names))}
    found: dict[str, str] = {}
    for column, candidates in common.items():
        free = [by_plain[name] for name in candidates if name in by_plain and by_plain[name] not in found.values()]
        if column in given:
            found[column] = given[column]
        elif free:
            found[column] = free[0]
    return {column: name for column, name in found.items() if name}


def check_columns(
    path: Path, names: list[str], found: Mapping[str, str], required: Iterable[str], given: Mapping[str, str]
) -> None:
    """Refuse a choice of columns that lacks a required one or names one that a table doesn't have."""
    missing = [column for column in required if column not in found]
    unknown = [name for name in given.values() if name and name not in names]
    if unknown or missing:
        problem = f"no column named {', '.join(unknown)}" if unknown else f"no column found for {', '.join(missing)}"
        example = ",".join(f"{column}=NAME" for column in missing or given)
        raise SettingError(
            f"{path}: {problem}. The columns are {', '.join(map(str, names))}. Name the right ones with "
            f"--columns {example}."
        )


def described(found: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Return the line that shows the user which columns are read."""
    shown = ", ".join(f"{column}={name}" for column, name in found.items())
    guessed = [column for column in found if column not in given]
    return f"columns: {shown}" + (f" ({', '.join(guessed)} guessed; --columns changes them)" if guessed else "")
