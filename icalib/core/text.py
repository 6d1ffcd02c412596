"""Values, texts and invalid data from outside, as messages show them: short, and without control characters."""

from __future__ import annotations

import json
import re
import reprlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from pydantic import ValidationError

_MAX_MESSAGE = 2000
_MAX_VALUE = 80
_EXPECTED = {
    "dict_type": "a JSON object",
    "extra_forbidden": "no field of this name",
    "list_type": "a list",
    "missing": "a value",
    "string_type": "a string",
    "string_unicode": "valid unicode",
    "tuple_type": "a list",
}


class CsvLines:
    """What a `csv.writer` writes to, with its own line terminator: lines end in a line feed. With that as terminator it
    would leave a carriage return in a cell without quotes, which readers take for the end of the row.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        """Write a row."""
        self._file.write(line.removesuffix("\r\n") + "\n")


def printable(text: str) -> str:
    """Return a text with control characters escaped, except line breaks and tabs."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else character.encode("unicode_escape").decode()
        for character in text
    )


def message(text: str) -> str:
    """Return a printable message; of a very long one, beginning and end, which says what to do."""
    if len(text) > _MAX_MESSAGE:
        text = f"{shortened(text, _MAX_MESSAGE - 500)} {text[-500:]}"
    return printable(text)


def shortened(text: str, size: int = _MAX_VALUE) -> str:
    """Return the first characters of a text, with an ellipsis where it continues."""
    return text if len(text) <= size else f"{text[: size - 3]}..."


def listed(names: Sequence[str], number: int = 5) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - number} more" if len(names) > number else ""
    return f"{', '.join(names[:number])}{more}"


def did_you_mean(name: str, names: Iterable[str], number: int = 1) -> str:
    """Return a question about the names that are most like a misspelt one, after a space; empty if none is."""
    near = get_close_matches(name, names, number)
    return f" Did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""


def short_repr(value: Any) -> str:
    """Return the beginning of a value's `repr`, however large or nested the value is."""
    limits = reprlib.Repr()
    limits.maxstring = limits.maxother = limits.maxlong = _MAX_VALUE
    return shortened(limits.repr(value))


class Problem(NamedTuple):
    """The first thing that is wrong with a value."""

    path: tuple[str, ...]  # the names of fields and the indices of list items that lead to it
    found: str
    expected: str


def first_problem(error: ValidationError) -> Problem:
    """Describe the first of an error's problems."""
    return describe(error.errors(include_url=False)[0])


def describe(first: Mapping[str, Any]) -> Problem:
    """Describe one item of pydantic's `errors()`."""
    missing = first["type"] == "missing"
    return Problem(
        path=tuple(map(str, first["loc"])),
        found="it is missing" if missing else f"found {abbreviated(first['input'])}",
        expected=_EXPECTED.get(first["type"]) or _without_subject(first["msg"]),
    )


def abbreviated(value: Any) -> str:
    """Return a value as JSON for a message, at most 60 characters of it."""
    try:
        text = json.dumps(value, ensure_ascii=True, default=str)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    return shortened(text, 60)


def _without_subject(text: str) -> str:
    """Shorten "Tuple should have at least 2 items after validation, not 0" to what is expected."""
    text = re.sub(r"^(Value error, |\w+ should (be|have) )", "", text)
    return re.sub(r" after validation, not .*$|, unable to .*$", "", text)
