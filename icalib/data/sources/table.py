"""Exports with one message a row: conversation id, time, sender, text; CSV, TSV, Parquet, JSONL.

Columns are named with `--columns id=ticket,time=created,sender=who,text=body` or guessed from common names. The rows of
a conversation may be apart from each other; they are sorted by time, or keep their order where there is none.
"""

from __future__ import annotations

import pickle
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError, SettingError, StorageError
from icalib.core.text import abbreviated
from icalib.data.schema import Dialogue, Split
from icalib.data.sources.files import split_in_name
from icalib.data.sources.messages import EMPTY, NO_TEXT, SKIPPED, Role, role_of, text_of
from icalib.data.sources.records import Raw, Reader, Source, build, joined, records_in
from icalib.data.sources.rows import (
    TIMES,
    check_columns,
    falls,
    first_rows,
    guessed_columns,
    id_text,
    parsed_time,
    plain_column,
    read_rows,
    row_files,
    row_of,
    sampled,
    split_of_rows,
    time_form,
    unchecked_row,
)

COMMON: Mapping[str, tuple[str, ...]] = {
    "id": (
        "conversationid", "convid", "conversation", "dialogid", "dialogueid", "dialog", "dialogue", "chatid", "chat",
        "threadid", "thread", "ticketid", "ticket", "sessionid", "session", "caseid", "case", "id",
    ),
    "time": TIMES,
    "clock": (),  # the time of day where `time` is the day; known by its values
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
_MARKS = {"": None, "1.0": True, "0.0": False}  # as pandas writes columns with gaps
_DAY, _CLOCK = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")
TWICE = "rows of a conversation that are the same as another"


@dataclass(frozen=True)
class _Table:
    columns: Mapping[str, str]
    speakers: Mapping[str, Role]
    time_form: str = ""
    newest_first: bool = False
    """Whether rows of equal times are in falling order."""
    left_out: Counter[str] = field(default_factory=Counter[str])

    def conversations(self, files: Iterable[Path]) -> Iterator[Raw]:
        """Yield the rows of each conversation as one record, in the order of first appearance.

        Rows wait on disk; only the ids are held in memory. A row whose id can't be read is yielded first, by itself.
        """
        indices: dict[tuple[Split | None, str], int] = {}
        try:
            with closing(sqlite3.connect("")) as database:  # a temporary file
                database.execute("PRAGMA journal_mode = OFF")
                database.execute("CREATE TABLE rows (conversation INTEGER, raw BLOB)")
                for raw in chain.from_iterable(map(read_rows, files)):
                    try:
                        index = indices.setdefault((split_in_name(raw.path), self._id(raw)), len(indices))
                        database.execute("INSERT INTO rows VALUES (?, ?)", (index, pickle.dumps(raw)))
                    except (DataError, RecursionError):
                        yield joined([raw])
                rows = database.execute("SELECT * FROM rows ORDER BY conversation, rowid")
                for _, members in groupby(rows, key=itemgetter(0)):
                    yield joined([pickle.loads(raw) for _, raw in members])
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"cannot write a temporary file: {error}. Free space, or set SQLITE_TMPDIR to a folder on another disk."
            ) from error

    def dialogue(self, raw: Raw) -> Dialogue | None:
        """Return the rows of a conversation as a dialogue, without those that have no text; None if none is left."""
        rows = [(member, row_of(member)) for member in self._distinct(raw.value)]
        dialog_id = self._id(raw.value[0])
        if self.newest_first:
            rows.reverse()
        if "time" in self.columns:
            rows.sort(key=lambda row: self._time(*row))
        utterances = [utterance for row in rows for utterance in self._utterances(*row)]
        if not utterances:
            self.left_out[NO_TEXT] += 1
            return None
        first = rows[0][1]
        record = {
            "dialog_id": dialog_id,
            "domain": text_of(first.get(self.columns.get("domain", ""))),
            "split": split_of_rows(rows, self.columns.get("split", "")),
            "utterances": utterances,
        }
        return build(Dialogue, record, raw, self.columns)

    def _distinct(self, members: tuple[Raw, ...]) -> Iterable[Raw]:
        """Return rows without those that are written twice; without times a text may have been said twice."""
        distinct = {member.text: member for member in members}
        if "time" not in self.columns or len(distinct) == len(members):
            return members
        self.left_out[TWICE] += len(members) - len(distinct)
        return distinct.values()

    def _id(self, raw: Raw) -> str:
        column = self.columns["id"]
        value = unchecked_row(raw).get(column)
        if value is None or value != value or not str(value).strip():
            raise raw.error("found no conversation id", field=column)
        return id_text(value)

    def _time(self, raw: Raw, row: Mapping[str, Any]) -> float:
        value = _moment(row, self.columns)
        time = parsed_time(value)
        if time is None or time_form(value) != self.time_form:
            raise raw.error(
                f"found {abbreviated(value)} as time",
                f"Expected the form of the first row. --columns time= (no name) keeps the order of rows. {raw.cure}.",
                self.columns["time"],
            )
        return time

    def _utterances(self, raw: Raw, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        text = text_of(row.get(self.columns["text"]))
        if not text.strip():
            self.left_out[EMPTY] += 1
            return
        role = role_of(row.get(self.columns["sender"]), self.speakers, raw, self.columns["sender"])
        if role == "skip":
            self.left_out[SKIPPED] += 1
            return
        mark = row.get(self.columns.get("is_answer", ""))
        is_answer = _MARKS.get(mark, mark) if isinstance(mark, str) else mark
        yield {"speaker": role, "text": text, "is_answer": is_answer}


def _open(path: Path, speakers: Mapping[str, Role], columns: Mapping[str, str]) -> Source:
    files = row_files(path)
    sample, names = sampled(path)
    found = guessed_columns(names, COMMON, columns)
    if "time" not in columns and found.keys() >= {"id", "time"}:
        found |= _telling_time(sample, names, found)
    understood = check_columns(files, names, found, REQUIRED, columns)
    ids = {str(row.get(found["id"])) for row in sample}
    if "id" not in columns and found["id"].strip("_").lower() == "id" and len(ids) == len(sample) > 1:
        raise SettingError(  # ids of messages are often called so, too
            f"{files[0]}: each of the first {len(sample)} rows has another `{found['id']}`, so that is not a "
            "conversation's. Name the column that the messages of a conversation share with --columns id=NAME."
        )
    times: list[list[float]] = []
    form = ""
    if time := found.get("time"):
        rows = (row for row in sample if str(row.get(time, "")).strip() not in ("", "None", "nan"))
        given = next((_moment(row, found) for row in rows), None)
        if parsed_time(given) is None:
            shown = abbreviated(given)
            understood += f"; rows keep their order, since the time {shown} is neither a number nor ISO 8601"
            del found["time"]
        else:
            form = time_form(given)
            times = _times(sample, found)
        if times and max(map(len, times)) > 1 and all(len({*one}) == 1 for one in times):
            understood += f"; rows keep their order, since those of a conversation have one `{time}`"
    elif "time" not in columns:
        understood += "; rows keep their order, since there is no column of times"
    newest_first = sum(map(falls, times)) > 0
    if newest_first:
        understood += "; the newest rows come first"
    table = _Table(found, speakers, form, newest_first)
    dialogues = records_in([files], table.conversations, table.dialogue)
    return Source(files, dialogues, understood=understood, left_out=table.left_out)


def _moment(row: Mapping[str, Any], columns: Mapping[str, str]) -> Any:
    """Return a row's time, which may be in two columns: the day and the time of day."""
    time = row.get(columns["time"])
    return f"{time} {row.get(columns['clock'])}" if "clock" in columns else time


def _times(sample: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> list[list[float]]:
    """Return the times of each conversation's rows."""
    times: dict[str, list[float]] = {}
    for row in sample:
        if (time := parsed_time(_moment(row, columns))) is not None:
            times.setdefault(str(row.get(columns["id"])), []).append(time)
    return list(times.values())


def _telling_time(
    sample: Sequence[Mapping[str, Any]], names: Iterable[str], found: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns of times that tell most rows of a conversation apart: the most telling by its name may be of
    the day, beside one of the time of day, or of the conversation's beginning.
    """
    by_plain = {plain_column(name): name for name in names}
    taken = {name for column, name in found.items() if column != "time"}
    free = [by_plain[plain] for plain in TIMES if plain in by_plain and by_plain[plain] not in taken]
    days, clocks = ([name for name in free if _all_match(form, name, sample)] for form in (_DAY, _CLOCK))
    choices = [{"time": name} for name in free]
    choices += [{"time": day, "clock": clock} for day in days[:1] for clock in clocks[:1]]
    return max(choices, key=lambda chosen: sum(len({*one}) for one in _times(sample, {**found, **chosen})))


def _all_match(form: re.Pattern[str], name: str, sample: Iterable[Mapping[str, Any]]) -> bool:
    return all(form.fullmatch(str(row.get(name)).strip()) for row in sample)


def _detects(path: Path) -> bool:
    for row in first_rows(path, 1):
        found = guessed_columns(row, COMMON, {})
        flat = not any(isinstance(row[name], list | dict) for name in found.values())
        return flat and all(column in found for column in REQUIRED)
    return False


table = Reader(_open, _detects, options=("speakers", "columns"))
