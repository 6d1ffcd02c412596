"""Values and texts from outside, as messages show them: short, and without control characters."""

from __future__ import annotations

import reprlib
import unicodedata
from typing import Any

_MAX_MESSAGE = 2000
_MAX_VALUE = 80


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


def short_repr(value: Any) -> str:
    """Return the beginning of a value's `repr`, however large or nested the value is."""
    limits = reprlib.Repr()
    limits.maxstring = limits.maxother = limits.maxlong = _MAX_VALUE
    return shortened(limits.repr(value))
