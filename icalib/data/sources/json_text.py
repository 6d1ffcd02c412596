"""JSON documents: one big object or array, member by member."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.sources.files import open_bytes
from icalib.data.sources.records import Raw

_SPACE = re.compile("[ \t\r\n\ufeff]*")
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder()


def json_members(path: Path) -> Iterator[Raw]:
    """Yield the members of a file that is one big JSON object; `Raw.value` is (key, value)."""
    text = _JsonText(path)
    for key in text.each("{"):
        line, member, value = text.value()
        yield Raw(path, line, member, (key, value))


def json_items(path: Path) -> Iterator[Raw]:
    """Yield the items of a file that is one big JSON array; `Raw.number` is their index, from 1."""
    text = _JsonText(path)
    for number, _ in enumerate(text.each("["), 1):
        line, item, value = text.value()
        yield Raw(path, line, item, value, number=number)


class _JsonText:
    """A file's text, and a position in it with its line."""

    def __init__(self, path: Path) -> None:
        with open_bytes(path) as file:
            self._text = file.read().decode("utf-8", "surrogateescape")
        self._path, self._at, self._line = path, 0, 1

    def each(self, opening: str) -> Iterator[str]:
        """Walk over an object or array: yield each member's key (empty in an array); the caller takes its value."""
        self._expect(opening)
        while self._next_mark() != _CLOSING[opening]:
            key = ""
            if opening == "{":
                _, _, key = self.value()
                self._expect(":")
            yield str(key)
            if self._next_mark() != _CLOSING[opening]:
                self._expect(",")
        self._expect(_CLOSING[opening])

    def value(self) -> tuple[int, str, Any]:
        """Take one whole JSON value; return the line where it begins, its text and itself."""
        self._next_mark()
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            raise self._broken(error.msg, self._text.count("\n", self._at, error.pos)) from None
        except (ValueError, RecursionError) as error:
            raise self._broken(str(error)) from None
        line = self._line
        return line, self._take(end), value

    def _next_mark(self) -> str:
        """Skip white space and return the next character, empty at the end."""
        space = _SPACE.match(self._text, self._at)
        self._take(space.end() if space else self._at)
        return self._text[self._at : self._at + 1]

    def _expect(self, mark: str) -> None:
        if (found := self._next_mark()) != mark:
            raise self._broken(f'found {abbreviated(found) if found else "the end of the file"} instead of "{mark}"')
        self._take(self._at + 1)

    def _take(self, end: int) -> str:
        """Move on to a position and return the text before it."""
        taken = self._text[self._at : end]
        self._at = end
        self._line += taken.count("\n")
        return taken

    def _broken(self, found: str, lines: int = 0) -> DataError:
        """Return the error for broken JSON, which can't be skipped: where the next member begins is unknown."""
        cure = "Fix the file or get it again (--skip-bad cannot skip this)."
        return DataError(f"broken JSON: {found}", cure, path=self._path, line=self._line + lines)
