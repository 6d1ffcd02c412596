"""Pools for annotators as CSV: one row a candidate, with an empty column `right`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from icalib.core.errors import DataError
from icalib.data.schema import Pool
from icalib.data.sources.records import Raw, refuse_bad_bytes
from icalib.labelling.annotations import Annotation, Answer

_COLUMNS = ("pool_id", "context", "candidate", "text", "right", "annotator")
_RIGHT = {"1": True, "x": True, "yes": True, "true": True, "0": False, "no": False, "false": False, "": None}
_CURE = "Correct the row; docs/labels.md describes the table"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""Beginnings of cells that a spreadsheet would compute, or take for quoted; a quote before them makes them text."""


def table_text(pools: Sequence[Pool]) -> str:
    """Return the CSV of pools; `right` and `annotator` are empty."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for pool in pools:
        context = "\n".join(f"{utterance.speaker}: {utterance.text}" for utterance in pool.context)
        for number, candidate in enumerate(pool.candidates, 1):
            writer.writerow([*map(_as_text, (pool.pool_id, context)), number, _as_text(candidate), "", ""])
    return text.getvalue()


def _as_text(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _from_text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def read_table(path: Path) -> Iterator[Answer]:
    """Yield the answers of a CSV: one for each pool and annotator, by default the file's name.

    Of a pool with a 1, empty rows are 0; a pool with neither a 1 nor a 0 in every row is unfinished. The time of an
    answer is the file's. A DataError names the line of a row that is not valid.
    """
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    groups: dict[tuple[str, str], dict[int, tuple[Raw, dict[str, str]]]] = {}
    for raw, row in _rows(path):
        annotator = row["annotator"].strip() or path.stem
        group = groups.setdefault((_from_text(row["pool_id"].strip()), annotator), {})
        number = _number(raw, row["candidate"])
        if number in group:
            raise raw.error(f"candidate {number} of pool {row['pool_id']} is in two rows of {annotator}")
        group[number] = raw, row
    for (pool_id, annotator), group in groups.items():
        first = next(iter(group.values()))[0]
        if sorted(group) != list(range(1, len(group) + 1)):
            raise first.error(f"pool {pool_id} has the candidates {sorted(group)} and lacks others, numbered from 1")
        rows = [group[number] for number in sorted(group)]
        marks = [_mark(raw, row["right"]) for raw, row in rows]
        finished = any(marks) or None not in marks
        right = tuple(index for index, mark in enumerate(marks) if mark)
        annotation = Annotation(pool_id, annotator, when, right) if finished else None
        yield Answer(first, pool_id, tuple(_from_text(row["text"]) for _, row in rows), annotation)


def _rows(path: Path) -> Iterator[tuple[Raw, dict[str, str]]]:
    text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    refuse_bad_bytes(Raw(path, 0, text, cure="In a spreadsheet: save as CSV UTF-8"))
    header = text.partition("\n")[0]
    reader = csv.DictReader(StringIO(text), delimiter=max(",;\t", key=header.count), restval="")
    try:
        if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
            expected = "Expected a table that `icalib label next` wrote."
            raise DataError(f"the table has no column {', '.join(missing)}", expected, path=path)
        for row in reader:
            yield Raw(path, reader.line_num, "", cure=_CURE), row
    except csv.Error as error:
        raise DataError(f"can't be read ({error})", f"{_CURE}.", path=path, line=reader.line_num) from error


def _number(raw: Raw, text: str) -> int:
    if not text.strip().isdecimal():
        raise raw.error(f"found {text!r:.40}, expected a candidate's number from 1", field="candidate")
    return int(text)


def _mark(raw: Raw, text: str) -> bool | None:
    if text.strip().lower() not in _RIGHT:
        raise raw.error(f"found {text!r:.40}, expected 1, 0 or nothing", field="right")
    return _RIGHT[text.strip().lower()]
