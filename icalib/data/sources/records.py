"""Raw records of a source with their position in a file, and their validation one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated, first_problem
from icalib.core.text import shortened

OnReject = Callable[[DataError, str], None]
"""Receives each record that is not valid, with its raw text; reading then continues with the next record."""

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
SKIP_CURE = "Fix the record, or leave such records out with --skip-bad"


@dataclass(frozen=True)
class Raw:
    """One record as written in its file."""

    path: Path
    line: int
    """Number of the record's first line, from 1."""
    text: str
    value: Any = None
    """What the text holds, where reading the file has parsed it already."""
    cure: str = SKIP_CURE
    """What to do if the record is not valid."""
    number: int = 0
    """Index of the record in its file, from 1, where several records may be on one line; 0: the line counts."""
    problem: str = ""
    """Why the record can't be read, whatever it holds; it is then refused before it is parsed."""

    def error(self, found: str, cure: str = "", field: str = "") -> DataError:
        """Return a DataError that points at this record."""
        return DataError(found, cure or f"{self.cure}.", path=self.path, line=self.line, field=field)


def joined(members: list[Raw]) -> Raw:
    """Return records as one, which begins where the first one does; its `value` is the tuple of them."""
    first = members[0]
    problem = next((raw.problem for raw in members if raw.problem), "")
    text = "\n".join(raw.text for raw in members)
    return Raw(first.path, first.line, text, tuple(members), number=first.number, problem=problem)


def accepted(raws: Iterable[Raw], parse: Callable[[Raw], T | None], on_reject: OnReject | None) -> Iterator[T]:
    """Parse raw records, leaving out those for which `parse` returns None; invalid ones go to `on_reject`, if given."""
    for raw in raws:
        try:
            record = _parsed(raw, parse)
        except DataError as error:
            if on_reject is None:
                raise
            on_reject(error, raw.text)
        else:
            if record is not None:
                yield record


def _parsed(raw: Raw, parse: Callable[[Raw], T]) -> T:
    refuse_bad_bytes(raw)
    try:
        return parse(raw)
    except UnicodeEncodeError:  # JSON can spell what no file can hold
        raise raw.error("found half of a surrogate pair, which is no character") from None


def unique(parse: Callable[[Raw], T | None], field: str) -> Callable[[Raw], T | None]:
    """Return a function like `parse` that refuses a record whose id, in `field`, an earlier record has used."""
    first_line: dict[str, tuple[Path, int]] = {}

    def parse_unique(raw: Raw) -> T | None:
        record = parse(raw)
        if record is None:
            return None
        record_id: str = getattr(record, field)
        if record_id in first_line:
            path, line = first_line[record_id]
            where = f"on line {line}" + (f" of {path}" if path != raw.path else "")
            raise raw.error(f'{field} "{shortened(record_id)}" was used before, {where}', field=field)
        first_line[record_id] = raw.path, raw.line
        return record

    return parse_unique


def refuse_bad_bytes(raw: Raw) -> None:
    """Refuse a record with a `problem`, or with bytes that aren't UTF-8 (`read_lines` keeps them as surrogates)."""
    if raw.problem:
        raise raw.error(f"found {raw.problem}")
    if bad := re.search("[\udc80-\udcff]", raw.text):
        raise raw.error(
            f"byte 0x{ord(bad[0]) - 0xDC00:02x} at character {bad.start() + 1} is not UTF-8",
            f"Save the file as UTF-8. {raw.cure}.",
        )


def build(model: type[Model], value: Any, raw: Raw, names: Mapping[str, str] | None = None) -> Model:
    """Validate the fields of a record.

    `names` has the source's own name of each of our fields that it calls otherwise, for the message.
    """
    if not isinstance(value, dict):
        raise raw.error(f"found {abbreviated(value)} where a JSON object was expected")
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        problem = first_problem(invalid)
        field = ".".join((names or {}).get(part, part) for part in problem.path)
        raise raw.error(problem.found, f"Expected: {problem.expected}. {raw.cure}.", field) from None


def parse_json(raw: Raw) -> Any:
    """Return the record's text as a JSON value; DataError where it isn't one."""
    try:
        return json.loads(raw.text)
    except json.JSONDecodeError as error:
        raise raw.error(f"broken JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise raw.error(f"JSON that cannot be read: {error}") from None
