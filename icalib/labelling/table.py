"""Pools for annotators as CSV: one row a candidate, with an empty column `right`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from icalib.core.errors import DataError
from icalib.core.text import CsvLines
from icalib.data.schema import Pool
from icalib.data.sources.records import Raw
from icalib.labelling.annotations import Annotation, Answer, filled_rows

_COLUMNS = ("pool_id", "context", "candidate", "text", "right", "annotator")
_RIGHT = {
    **dict.fromkeys(("1", "1.0", "x", "yes", "true"), True),  # 1.0: pandas has no whole numbers beside empty cells
    **dict.fromkeys(("0", "0.0", "no", "false"), False),
    "": None,
}
_CURE = "Correct the row; docs/labels.md describes the table"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""Beginnings of cells that a spreadsheet would compute, or take for quoted; a quote before them makes them text."""


def table_text(pools: Sequence[Pool]) -> str:
    """Return the CSV of pools; `right` and `annotator` are empty."""
    text = StringIO()
    writer = csv.writer(CsvLines(text))
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


@dataclass(frozen=True)
class _Row:
    """A candidate of a pool; `annotator` is empty in rows without a name."""

    raw: Raw
    pool_id: str
    number: int
    text: str
    mark: bool | None
    annotator: str


def read_table(path: Path) -> Iterator[Answer]:
    """Yield the answers of a CSV: one for each pool and annotator.

    Rows without a name are of the pool's only annotator if they don't repeat a candidate of theirs, else of one with
    the file's name. Of a pool with a 1, empty rows are 0; a pool with neither a 1 nor a 0 in every row is unfinished.
    An answer has no time, so that the file that is imported last counts: a file's own changes when it is unpacked or
    copied. A DataError names the line of a row that is not valid.
    """
    table = list(_rows(path))
    only_annotators = _only_annotators(table)
    groups: dict[tuple[str, str], dict[int, _Row]] = {}
    for row in table:
        annotator = row.annotator or only_annotators.get(row.pool_id, path.stem)
        group = groups.setdefault((row.pool_id, annotator), {})
        if row.number in group:
            raise row.raw.error(f"candidate {row.number} of pool {row.pool_id} is in two rows of {annotator}")
        group[row.number] = row
    for (pool_id, annotator), group in groups.items():
        first = next(iter(group.values())).raw
        if sorted(group) != list(range(1, len(group) + 1)):
            raise first.error(
                f"pool {pool_id} has the candidates {sorted(group)}, expected all from 1 on",
                "Add the missing rows, or correct a mistyped `pool_id`.",
            )
        rows = [group[number] for number in sorted(group)]
        marks = [row.mark for row in rows]
        finished = any(marks) or None not in marks
        right = tuple(index for index, mark in enumerate(marks) if mark)
        annotation = Annotation(pool_id, annotator, None, right) if finished else None
        yield Answer(first, pool_id, tuple(row.text for row in rows), annotation)


def _only_annotators(table: Sequence[_Row]) -> dict[str, str]:
    """Return whose the rows without a name are, by pool: people write their name only where they write the 1."""
    numbers: dict[str, dict[str, set[int]]] = {}
    for row in table:
        numbers.setdefault(row.pool_id, {}).setdefault(row.annotator, set()).add(row.number)
    found: dict[str, str] = {}
    for pool_id, by_annotator in numbers.items():
        unnamed = by_annotator.pop("", set())
        if len(by_annotator) == 1 and unnamed.isdisjoint(*by_annotator.values()):
            (found[pool_id],) = by_annotator
    return found


def _rows(path: Path) -> Iterator[_Row]:
    for raw in filled_rows(path, _CURE):
        if missing := [name for name in _COLUMNS if name not in raw.value]:
            expected = "Expected a table that `icalib label next` wrote."
            raise DataError(f"the table has no column {', '.join(missing)}", expected, path=path)
        yield _Row(
            raw,
            pool_id=_from_text(raw.value["pool_id"].strip()),
            number=_number(raw, raw.value["candidate"]),
            text=_from_text(raw.value["text"]),
            mark=_mark(raw, raw.value["right"]),
            annotator=raw.value["annotator"].strip(),
        )


def _number(raw: Raw, text: str) -> int:
    if not text.strip().isdecimal():
        raise raw.error(f"found {text!r:.40}, expected a candidate's number from 1", field="candidate")
    return int(text)


def _mark(raw: Raw, text: str) -> bool | None:
    if text.strip().lower() not in _RIGHT:
        raise raw.error(f"found {text!r:.40}, expected 1, 0 or nothing", field="right")
    return _RIGHT[text.strip().lower()]
