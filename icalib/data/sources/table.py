"""Exports with one message a row: conversation id, time, sender, text; CSV, TSV, Parquet, JSONL, saved data sets.

Columns are named with `--columns id=ticket,time=created,sender=who,text=body` or guessed from common names. The rows of
a conversation may be apart from each other; they are sorted by time, or keep their order where there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from icalib.core.errors import SettingError
from icalib.core.invalid import abbreviated
from icalib.data.schema import Dialogue, Split
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.columns import NO_COLUMNS, check_columns, described, guessed_columns, plain_name
from icalib.data.sources.grouping import grouped
from icalib.data.sources.messages import NO_TEXT
from icalib.data.sources.records import Raw, build
from icalib.data.sources.rows import first_rows, own_split, read_rows, row_files, row_of, sample_rows
from icalib.data.sources.speakers import NO_SPEAKERS, Role, role_of

COMMON: Mapping[str, tuple[str, ...]] = {
    "id": (
        "conversationid", "convid", "conversation", "dialogid", "dialogueid", "dialog", "dialogue", "chatid", "chat",
        "threadid", "thread", "ticketid", "ticket", "sessionid", "session", "caseid", "case", "id",
    ),
    "time": (
        "timestamp", "time", "createdat", "created", "sentat", "sent", "datetime", "date", "ts",
        "turn", "turnid", "turnindex", "messageindex", "position",
    ),
    "sender": (
        "sendertype", "senderrole", "authortype", "speakerrole", "role", "sender", "speaker", "from", "author",
        "actor", "participant", "who", "user", "username", "name",
    ),
    "text": ("text", "message", "body", "content", "utterance", "messagetext", "msg", "comment", "value"),
    "domain": ("domain", "category", "topic"),
    "split": ("split",),
    "is_answer": ("isanswer",),
}  # fmt: skip
"""Common names of columns, in lower case without spaces and signs; the most telling first."""
REQUIRED = ("id", "sender", "text")
_TIME_FORMATS = (
    "%a %b %d %H:%M:%S %z %Y",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
)


@dataclass(frozen=True)
class _Table:
    """How the rows of a table are read."""

    columns: Mapping[str, str]
    speakers: Mapping[str, Role]
    splits: Mapping[Path, Split | None]
    left_out: Counter[str] = field(default_factory=Counter[str])

    def conversations(self, files: Iterable[Path]) -> Iterator[Raw]:
        """Yield the rows of each conversation in some files as one record."""
        return grouped((raw for file in files for raw in read_rows(file)), self._id)

    def dialogue(self, raw: Raw) -> Dialogue | None:
        """Return the rows of a conversation as a dialogue, without those that have no text; None if none is left."""
        rows = [(member, row_of(member)) for member in (raw.value if isinstance(raw.value, tuple) else (raw,))]
        if "time" in self.columns:
            rows.sort(key=lambda row: self._time(*row))
        first = rows[0][1]
        dialog_id = self._id(rows[0][0])
        utterances = [utterance for row in rows for utterance in self._utterances(*row)]
        if not utterances:
            self.left_out[NO_TEXT] += 1
            return None
        record = {
            "dialog_id": dialog_id,
            "domain": str(first.get(self.columns.get("domain", "")) or ""),
            "split": self.splits[raw.path] or own_split(first, self.columns.get("split", "split")),
            "utterances": utterances,
        }
        return build(Dialogue, record, raw, self.columns)

    def _id(self, raw: Raw) -> str:
        """Return the id of a row's conversation.

        Raises:
            DataError: not a row of this table, or one without id.
        """
        column = self.columns["id"]
        value = row_of(raw).get(column)
        if value is None or value != value or not str(value).strip():
            raise raw.error("found no conversation id", field=column)
        return str(value).strip()

    def _time(self, raw: Raw, row: Mapping[str, Any]) -> float:
        value = row.get(self.columns["time"])
        time = parsed_time(value)
        if time is None:
            raise raw.error(
                f"found {abbreviated(value)} as time",
                f"Expected the form of the first row. --columns time= (no name) keeps the order of rows. {raw.cure}.",
                self.columns["time"],
            )
        return time

    def _utterances(self, raw: Raw, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        text = row.get(self.columns["text"])
        if isinstance(text, str) and text.strip():
            role = role_of(row.get(self.columns["sender"]), self.speakers, raw, self.columns["sender"])
            if role != "skip":
                is_answer = row.get(self.columns.get("is_answer", ""))
                yield {"speaker": role, "text": text, "is_answer": None if is_answer == "" else is_answer}


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS, columns: Mapping[str, str] = NO_COLUMNS) -> Source:
    splits: dict[Path, Split | None] = {file.path: file.split for file in row_files(path)}
    first_file = next(iter(splits))
    sample = sample_rows(path)
    names = list(dict.fromkeys(name for row in sample for name in row))
    found = guessed_columns(names, COMMON, columns)
    check_columns(first_file, names, found, REQUIRED, columns)
    if "id" not in columns and plain_name(found["id"]) == "id":
        _check_ids(first_file, found["id"], sample)
    understood = described(found, columns)
    if "time" in found and parsed_time(time := sample[0].get(found["time"])) is None:
        understood += f"; rows keep their order, since the time {abbreviated(time)} can't be read"
        del found["time"]
    table = _Table(found, speakers, splits)
    files_of: dict[Split | None, list[Path]] = {}
    for file, split in splits.items():
        files_of.setdefault(split, []).append(file)
    dialogues = dialogues_in(list(files_of.values()), table.conversations, table.dialogue)
    return Source(tuple(splits), dialogues, understood=understood, left_out=table.left_out)


def parsed_time(value: Any) -> float | None:
    """Return a time as a number: of a number (also as text), of ISO 8601 and a few other forms; None for any other.

    Example:
        >>> parsed_time("2026-01-31 09:05:00Z") - parsed_time("2026-01-31T09:04:00+00:00")
        60.0
    """
    text = str(value).strip()
    with suppress(ValueError):
        number = float(text)
        return number if number == number else None
    for parse in (datetime.fromisoformat, *(partial(_in_format, form) for form in _TIME_FORMATS)):
        with suppress(ValueError, OverflowError):
            time = parse(text)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return None


def _in_format(form: str, text: str) -> datetime:
    return datetime.strptime(text, form)


def _check_ids(path: Path, column: str, sample: Sequence[Mapping[str, Any]]) -> None:
    """Refuse ids of messages, which are often called `id`, too.

    Raises:
        SettingError: each row of the sample has another value.
    """
    if len(sample) > 1 and len({str(row.get(column)) for row in sample}) == len(sample):
        raise SettingError(
            f"{path}: each of the first {len(sample)} rows has another `{column}`, so that is not a conversation's. "
            "Name the column that the messages of a conversation share with --columns id=NAME."
        )


def _detects(path: Path) -> bool:
    rows = first_rows(path, 1)
    if not rows:
        return False
    found = guessed_columns(rows[0], COMMON, {})
    flat = not any(isinstance(rows[0][name], list | dict) for name in found.values())
    return flat and all(column in found for column in REQUIRED)


table = Reader(_open, _detects, options=("speakers", "columns"))
