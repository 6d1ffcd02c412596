"""Reading annotators' files, whose format is detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from icalib.core.errors import DataError
from icalib.core.files import is_file
from icalib.data.sources.files import first_line, json_items, read_lines
from icalib.data.sources.records import Raw, parse_json, refuse_bad_bytes
from icalib.labelling import label_studio, model_answers
from icalib.labelling.annotations import Answer
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
    answers = list(read_table(path) if path.suffix.lower() == ".csv" else _json_answers(path))
    if not answers:
        raise DataError("the file has no answers", _EXPECTED, path=path)
    return answers


def _json_answers(path: Path) -> Iterator[Answer]:
    for record in _records(path):
        if isinstance(record.value, dict) and label_studio.is_task(record.value):
            yield from label_studio.read_task(record)
        elif isinstance(record.value, dict) and model_answers.is_record(record.value):
            yield from model_answers.read_record(record)
        else:
            raise record.error("found a record of an unknown format", _EXPECTED)


def _records(path: Path) -> Iterator[Raw]:
    """Yield the parsed records of a JSON array or of JSON lines."""
    is_list = first_line(path).lstrip().startswith("[")
    try:
        for raw in json_items(path) if is_list else read_lines(path, _CURE):
            refuse_bad_bytes(raw)
            value = raw.value if is_list else parse_json(raw)
            yield Raw(path, raw.line, raw.text, value, cure=_CURE, number=raw.number)
    except DataError as error:
        raise DataError(error.found, f"{_CURE}.", path=path, line=error.line, record=error.record) from error
