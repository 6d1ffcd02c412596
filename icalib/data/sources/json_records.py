"""The records of one JSON document, read as a stream: an array, or an object that holds an array or records by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from icalib.data.sources.files import GZIP_ERRORS, damaged, open_bytes
from icalib.data.sources.json_object import JsonText
from icalib.data.sources.records import Raw

CONTAINERS = frozenset(
    ("chats", "conversations", "dialogs", "dialogues", "list", "data", "rows", "sessions", "tickets", "threads")
)
"""Members of an object that may hold its records: of Telegram's export, `chats` and in it `list`."""

MAX_OTHERS = 10_000
"""Items of a list that are no records and are kept: they may be the messages of the only record."""


def json_records(path: Path, is_record: Callable[[Any], bool]) -> Iterator[Raw]:
    """Yield the records of a JSON document; `Raw.value` is a record, `Raw.number` its index.

    Args:
        path: plain or gzipped. It may hold several documents one after the other.
        is_record: whether a value inside of an object is a record. An object without any is a record itself.

    Raises:
        DataError: broken JSON.
    """
    try:
        with open_bytes(path) as file:
            text = JsonText(path, file)
            number = 0
            while text.next_mark():
                for line, member, value in _document(text, is_record):
                    number += 1
                    yield Raw(path, line, member, value, number=number)
    except GZIP_ERRORS as error:
        raise damaged(path, error, 0) from error


Record = tuple[int, str, Any]
"""The line where it begins, its text, its value."""


def _document(text: JsonText, is_record: Callable[[Any], bool]) -> Iterator[Record]:
    mark = text.next_mark()
    if mark == "[":
        yield from _items(text)
    elif mark == "{":
        line = text.line
        rest = dict[str, Any]()
        found = False
        for record in _members(text, is_record, rest):
            found = True
            yield record
        if not found:
            yield line, "", rest
    else:
        line = text.line
        yield (line, *text.value())


def _items(text: JsonText) -> Iterator[Record]:
    text.expect("[")
    closes = text.next_mark() == "]"
    while not closes:
        text.next_mark()
        line = text.line
        yield (line, *text.value())
        closes = text.next_mark() == "]"
        if not closes:
            text.expect(",")
    text.expect("]")


def _members(text: JsonText, is_record: Callable[[Any], bool], rest: dict[str, Any]) -> Iterator[Record]:
    """Yield the records inside of an object; what belongs to none of them is put into `rest`."""
    text.expect("{")
    closes = text.next_mark() == "}"
    while not closes:
        key = str(text.value()[1])
        text.expect(":")
        mark = text.next_mark()
        line = text.line
        if key in CONTAINERS and mark == "[":
            others: list[Any] = []
            for record in _items(text):
                if is_record(record[2]):
                    yield record
                elif len(others) < MAX_OTHERS:
                    others.append(record[2])
            rest[key] = others
        elif key in CONTAINERS and mark == "{":
            inner = dict[str, Any]()
            yield from _members(text, is_record, inner)
            rest[key] = inner
        else:
            member, value = text.value()
            if isinstance(value, dict) and is_record(value):
                yield line, member, {"id": key, **value}
            else:
                rest[key] = value
        closes = text.next_mark() == "}"
        if not closes:
            text.expect(",")
    text.expect("}")
