"""Reading annotators' files, whose format is detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from icalib.core.errors import DataError
from icalib.core.files import is_file
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import kind_of
from icalib.labelling import label_studio, model_answers
from icalib.labelling.annotations import Answer, filled_rows
from icalib.labelling.table import read_table

_EXPECTED = (
    "Expected Label Studio's export as JSON (not JSON-MIN), a .csv table of `icalib label next`, or answers of "
    "`icalib label ask`."
)
_CURE = "Label a batch of `icalib label next`, its data unchanged, and export it again"


def read_answers(path: Path) -> list[Answer]:
    """Return the answers of a file; a DataError names the line of a record that is not valid."""
    if not is_file(path):
        raise DataError("no such file", "Check the path.", path=path)
    if kind_of(path) == "csv":
        answers = list(read_table(path))
    else:
        answers = [answer for record in filled_rows(path, _CURE) for answer in _answers(record)]
    if not answers:
        raise DataError("the file has no answers", _EXPECTED, path=path)
    return answers


def _answers(record: Raw) -> Iterator[Answer]:
    if label_studio.is_task(record.value):
        return label_studio.read_task(record)
    if model_answers.is_record(record.value):
        return model_answers.read_record(record)
    raise record.error("found a record of an unknown format", _EXPECTED)
