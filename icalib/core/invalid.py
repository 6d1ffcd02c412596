"""What pydantic found wrong with data from outside, in the words of our messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from icalib.core.text import shortened

_EXPECTED = {
    "dict_type": "a JSON object",
    "extra_forbidden": "no field of this name",
    "list_type": "a list",
    "missing": "a value",
    "string_type": "a string",
    "string_unicode": "valid unicode",
    "tuple_type": "a list",
}


class Problem(NamedTuple):
    """The first thing that is wrong with a value."""

    path: tuple[str, ...]
    """The names of fields and the indices of list items that lead to it."""
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
