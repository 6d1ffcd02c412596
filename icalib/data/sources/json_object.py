"""The members of a file that is one big JSON object, read as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from icalib.core.errors import DataError
from icalib.core.invalid import abbreviated
from icalib.data.sources.files import GZIP_ERRORS, damaged, open_bytes
from icalib.data.sources.records import Raw

CHUNK = 1 << 18
MEMBER_LIMIT = 1 << 24
"""Characters that a member may have, as `LINE_LIMIT` for lines."""


def json_members(path: Path) -> Iterator[Raw]:
    """Yield the members of a file that is one big JSON object; `Raw.value` is (key, value).

    Raises:
        DataError: broken JSON, or a file that isn't one object.
    """
    try:
        with open_bytes(path) as file:
            text = JsonText(path, file)
            text.expect("{")
            closes = text.next_mark() == "}"
            while not closes:
                _, key = text.value()
                text.expect(":")
                text.next_mark()
                line = text.line
                member, value = text.value()
                yield Raw(path, line, member, (str(key), value))
                closes = text.next_mark() == "}"
                if not closes:
                    text.expect(",")
    except GZIP_ERRORS as error:
        raise damaged(path, error, 0) from error


class JsonText:
    """A file's text, read as far as it is needed."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file
        self.text, self.line, self.at_end = "", 1, False
        self._tail = b""
        self.decoder = json.JSONDecoder()

    def more(self) -> None:
        """Read as much again as is held, at least one chunk; a character is never cut in two."""
        block = self.file.read(max(CHUNK, len(self.text)))
        self.at_end = not block
        data = self._tail + block
        cut = len(data) if self.at_end else _last_whole_character(data)
        self.text += data[:cut].decode("utf-8", "surrogateescape")
        self._tail = data[cut:]

    def drop(self, count: int) -> str:
        """Take characters from the front and count their lines."""
        taken, self.text = self.text[:count], self.text[count:]
        self.line += taken.count("\n")
        return taken

    def next_mark(self) -> str:
        """Skip white space and return the next character, empty at the end."""
        while True:
            self.drop(len(self.text) - len(self.text.lstrip(" \t\r\n\ufeff")))
            if self.text or self.at_end:
                return self.text[:1]
            self.more()

    def expect(self, mark: str) -> None:
        """Take one mark."""
        if (found := self.next_mark()) != mark:
            raise self.broken(f'found {abbreviated(found) if found else "the end of the file"} instead of "{mark}"')
        self.drop(1)

    def value(self) -> tuple[str, Any]:
        """Take one whole JSON value and return its text and the value."""
        self.next_mark()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text)
                if end < len(self.text) or self.at_end:
                    return self.drop(end), value
            except json.JSONDecodeError as error:
                if self.at_end or len(self.text) > MEMBER_LIMIT:
                    line = self.line + error.lineno - 1
                    limit = "" if self.at_end else f" in a member of more than {MEMBER_LIMIT >> 20} MiB"
                    raise self.broken(f"{error.msg}{limit}", line) from None
            except (ValueError, RecursionError) as error:
                raise self.broken(str(error)) from None
            self.more()

    def broken(self, found: str, line: int | None = None) -> DataError:
        """Return the error for broken JSON, which can't be skipped: where the next member begins is unknown."""
        return DataError(
            f"broken JSON: {found}",
            "Fix the file or get it again (--skip-bad cannot skip this).",
            path=self.path,
            line=line or self.line,
        )


def _last_whole_character(data: bytes) -> int:
    """Return where the last, possibly incomplete UTF-8 character begins."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 != 0x80:
            return len(data) - back
    return len(data)
