"""Rows of CSV files with the lines where they begin; a quoted field may span several lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from icalib.core.errors import DataError
from icalib.data.sources.files import read_lines
from icalib.data.sources.records import Raw


def csv_rows(file: Path, delimiter: str = ",") -> Iterator[Raw]:
    """Yield the rows, the header too; `Raw.value` is the list of a row's fields.

    Raises:
        DataError: broken CSV, or damaged gzip data.
    """
    lines = _Lines(file)
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        for row in reader:
            line, text = lines.take()
            yield Raw(file, line, text, row)
    except csv.Error as error:
        raise DataError(
            f"broken CSV: {error}",
            "Fix the file (--skip-bad cannot skip this).",
            path=file,
            line=lines.number,
        ) from error


class _Lines:
    """Feeds a CSV reader and keeps the first line number and the text of the current row."""

    def __init__(self, file: Path) -> None:
        self._lines = read_lines(file)
        self._taken: list[Raw] = []
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for raw in self._lines:
            self.number = raw.line
            if raw.problem:
                raise raw.error(f"found {raw.problem}", "Fix the file (--skip-bad cannot skip this).")
            self._taken.append(raw)
            yield raw.text + "\n"

    def take(self) -> tuple[int, str]:
        """Return line number and text of the row that the reader has just returned."""
        taken, self._taken = self._taken, []
        return taken[0].line, "\n".join(raw.text for raw in taken)
