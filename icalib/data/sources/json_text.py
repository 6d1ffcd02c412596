"""JSON documents of any size, read as a stream: one big object or array."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from icalib.core.errors import DataError
from icalib.core.text import abbreviated
from icalib.data.sources.files import LINE_LIMIT, open_bytes
from icalib.data.sources.records import Raw

CHUNK = 1 << 18
_SPACE = re.compile("[ \t\r\n\ufeff]*")
_CLOSING = {"{": "}", "[": "]"}


def json_members(path: Path) -> Iterator[Raw]:
    """Yield the members of a file that is one big JSON object; `Raw.value` is (key, value)."""
    with _opened(path) as text:
        for key in text.each("{"):
            line, member, value = text.value()
            yield Raw(path, line, member, (key, value))


def json_items(path: Path) -> Iterator[Raw]:
    """Yield the items of a file that is one big JSON array; `Raw.number` is their index, from 1."""
    with _opened(path) as text:
        for number, _ in enumerate(text.each("["), 1):
            line, item, value = text.value()
            yield Raw(path, line, item, value, number=number)


@contextmanager
def _opened(path: Path) -> Generator[_JsonText]:
    with open_bytes(path) as file, TextIOWrapper(file, "utf-8", "surrogateescape", newline="") as text:
        yield _JsonText(path, text)


class _JsonText:
    """A file's text, read as far as it is needed, and a position in it."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path, self._file = path, file
        self._text, self._at, self._at_end = "", 0, False
        self._decoder = json.JSONDecoder()
        self.line = 1

    def each(self, opening: str) -> Iterator[str]:
        """Walk over an object or array: yield each member's key (empty in an array); the caller takes its value."""
        self._expect(opening)
        while self.next_mark() != _CLOSING[opening]:
            key = ""
            if opening == "{":
                _, _, key = self.value()
                self._expect(":")
            yield str(key)
            if self.next_mark() != _CLOSING[opening]:
                self._expect(",")
        self._expect(_CLOSING[opening])

    def value(self) -> tuple[int, str, Any]:
        """Take one whole JSON value; return the line where it begins, its text and itself."""
        self.next_mark()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                if end < len(self._text) or self._at_end:
                    line = self.line
                    return line, self._take(end), value
            except json.JSONDecodeError as error:
                too_long = len(self._text) - self._at > LINE_LIMIT
                if self._at_end or too_long:
                    where = f" in a member of more than {LINE_LIMIT >> 20} MiB" if not self._at_end else ""
                    raise self._broken(error.msg + where, self._text.count("\n", self._at, error.pos)) from None
            except (ValueError, RecursionError) as error:
                raise self._broken(str(error)) from None
            self._more()

    def next_mark(self) -> str:
        """Skip white space and return the next character, empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._take(space.end() if space else self._at)
            if self._at < len(self._text) or self._at_end:
                return self._text[self._at : self._at + 1]
            self._more()

    def _expect(self, mark: str) -> None:
        if (found := self.next_mark()) != mark:
            raise self._broken(f'found {abbreviated(found) if found else "the end of the file"} instead of "{mark}"')
        self._take(self._at + 1)

    def _take(self, end: int) -> str:
        """Move on to a position and return the text before it."""
        taken = self._text[self._at : end]
        self._at = end
        self.line += taken.count("\n")
        return taken

    def _more(self) -> None:
        """Read as much again as is left, at least one chunk."""
        left = self._text[self._at :]
        block = self._file.read(max(CHUNK, len(left)))
        self._text, self._at, self._at_end = left + block, 0, not block

    def _broken(self, found: str, lines: int = 0) -> DataError:
        """Return the error for broken JSON, which can't be skipped: where the next member begins is unknown."""
        return DataError(
            f"broken JSON: {found}",
            "Fix the file or get it again (--skip-bad cannot skip this).",
            path=self._path,
            line=self.line + lines,
        )
