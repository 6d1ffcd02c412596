"""One dialogue a record, with a list of utterances or messages, each of which has a speaker and a text.

`jsonl`, icalib's own, one dialogue a line; all but `speaker` and `text` may be left out:

    {"dialog_id": str, "source": str, "domain": str, "split": "train" | "validation" | "test",
     "utterances": [{"speaker": "user" | "agent", "text": str, "intents": [str, ...], "is_answer": bool}]}

`messages`, chat logs:

    {"messages": [{"role": "user" | "assistant" | "system" | ..., "content": str}]}        OpenAI
    {"conversations": [{"from": "human" | "gpt" | ..., "value": str}]}                      ShareGPT
    {"id": int, "messages": [{"from": str, "text": str | list}]}                 one chat of Telegram's export

as JSONL, as a JSON array or as Parquet, or as JSON in a cell of a CSV. `id`, `domain` and `split` may be left out.
`is_answer` (true, false, 1 or 0) of a message says whether it is an accepted answer. Messages are sorted by their times
where all have one. Those without text (pictures, calls of tools) are left out.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, cast

from icalib.core.errors import DataError
from icalib.core.text import abbreviated
from icalib.data.schema import Dialogue
from icalib.data.sources.files import plain_name, read_lines, split_in_name
from icalib.data.sources.records import Raw, Reader, Source, build, records_in
from icalib.data.sources.rows import (
    TIMES,
    first_rows,
    in_order,
    json_in,
    own_id,
    parsed_time,
    plain_column,
    read_rows,
    record_id,
    row_files,
    row_of,
    split_of_row,
    time_form,
)

Role = Literal["user", "agent", "skip"]
"""`skip` leaves out what a speaker says."""

_USERS = (
    "user customer client human visitor guest caller requester seeker asker buyer patient consumer contact prompter "
    "member end-user end_user enduser"
)
_AGENTS = (
    "agent assistant bot chatbot gpt chatgpt bing bard claude ai model support operator staff advisor adviser "
    "representative rep wizard helper expert provider seller consultant"
)
_SKIPPED = "system developer tool function function_call function_response tool_call tool_response observation event"

DEFAULT_SPEAKERS: Mapping[str, Role] = {
    **dict.fromkeys(_USERS.split(), "user"),
    **dict.fromkeys(_AGENTS.split(), "agent"),
    **dict.fromkeys(_SKIPPED.split(), "skip"),
}
"""What speakers are without `--speakers`; upper and lower case are the same."""


def role_of(speaker: Any, given: Mapping[str, Role], raw: Raw, field: str) -> Role:
    """Return what a speaker is, by the names that the user has given (`*`: all others) and those that are usual; a
    DataError names any other, found in `field` of a record.
    """
    is_name = isinstance(speaker, str | int | float) and speaker == speaker
    shown = str(speaker).strip() if is_name else ""
    name = shown.lower()
    ours: dict[str, Role] = {key.strip().lower(): role for key, role in given.items()}
    role: Role | None = ours.get(name) or DEFAULT_SPEAKERS.get(name) or ours.get("*")
    if role is None:
        option = shlex.quote(f"{shown or 'NAME'}=user")
        raise raw.error(
            f"found {abbreviated(speaker)} as speaker",
            f"Expected 'user' or 'agent', or a name such as customer or assistant. Say what the speaker is: "
            f"--speakers {option} (or agent, or skip; *=user is for all others). {raw.cure}.",
            field,
        )
    return role


NO_TEXT = "conversations without a text of user or agent"
EMPTY = "messages without text"
SKIPPED = "messages of speakers that are skipped, such as system and tool (--speakers)"
USELESS_TIMES = (
    "conversations' times, which some messages lack, or which aren't all numbers or ISO 8601 of one form: these "
    "messages keep their order"
)
LISTS = ("messages", "conversations", "conversation", "chat_messages", "turns", "dialog", "dialogue", "utterances")
"""Fields of a record that may hold its messages."""
SPEAKERS = ("role", "from", "sender", "speaker", "author", "user", "name")
TEXTS = ("content", "value", "text", "message", "body", "utterance")
IDS = ("dialog_id", "dialogue_id", "conversation_id", "chat_id", "thread_id", "ticket_id", "session_id", "id", "uuid")
DOMAINS = ("domain", "category", "topic")
_NUM_TRIED = 5
"""Records that detection looks at."""


def _open_jsonl(path: Path, speakers: Mapping[str, Role]) -> Source:
    left_out = Counter[str]()

    def dialogue(raw: Raw) -> Dialogue:
        row = _without_nulls(row_of(raw))
        given = row.get("dialog_id")
        row["dialog_id"] = record_id(raw) if given is None else str(given) if isinstance(given, int) else given
        if row.get("split") is None:
            row["split"] = split_in_name(raw.path)
        if isinstance(row.get("utterances"), list):
            row["utterances"] = list(mapped(row["utterances"], raw))
        return build(Dialogue, row, raw)

    def mapped(utterances: list[Any], raw: Raw) -> Iterator[Any]:
        for index, utterance in enumerate(utterances):
            if not isinstance(utterance, dict):
                yield utterance  # which `build` refuses
                continue
            role = role_of(utterance.get("speaker"), speakers, raw, f"utterances.{index}.speaker")
            if role == "skip":
                left_out[SKIPPED] += 1
            else:
                yield {**_without_nulls(utterance), "speaker": role}

    return Source((path,), records_in((path,), read_lines, dialogue), left_out=left_out)


def _without_nulls(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without the fields that pandas and Arrow write as null where they are missing."""
    return {name: value for name, value in record.items() if value is not None}


def _detects_jsonl(path: Path) -> bool:
    """Whether the first line that can be read is a dialogue, or none of some can in a file that is named so."""
    if not path.is_file():
        return False
    with suppress(DataError):
        for line in islice(read_lines(path), _NUM_TRIED):
            with suppress(DataError):
                return "utterances" in row_of(line)
    return plain_name(path).endswith(".jsonl")


def _open_messages(path: Path, speakers: Mapping[str, Role]) -> Source:
    left_out = Counter[str]()

    def dialogue(raw: Raw) -> Dialogue | None:
        row = row_of(raw)
        field, messages = _messages(row)
        if not field:
            raise raw.error(f"found no list of messages under any of {', '.join(LISTS)}")
        utterances = turns(raw, messages, speakers, field, left_out)
        if not utterances:
            left_out[NO_TEXT] += 1
            return None
        record = {
            "dialog_id": own_id(row, *IDS) or record_id(raw),
            "domain": next((row[key] for key in DOMAINS if isinstance(row.get(key), str)), ""),
            "split": split_of_row(raw, row),
            "utterances": utterances,
        }
        return build(Dialogue, record, raw, {"utterances": field})

    files = row_files(path)
    return Source(files, records_in(files, read_rows, dialogue), left_out=left_out)


def _is_conversation(row: Mapping[str, Any]) -> bool:
    """Whether a row has messages: objects of which one at least has a speaker and a text. A preference has the chosen
    ones only, and is of ready-made ranking data.
    """
    _, messages = _messages(row)
    return not row.keys() >= {"chosen", "rejected"} and any(
        isinstance(message, dict) and _key(message, SPEAKERS) and _key(message, TEXTS) for message in messages
    )


def turns(
    raw: Raw, messages: list[Any], speakers: Mapping[str, Role], field: str, left_out: Counter[str]
) -> list[dict[str, Any]]:
    """Return messages, in the order of their times, as utterances; `left_out` counts those that are none, and times
    that are no use.
    """
    order = _order(messages, left_out)
    named = (_utterances(raw, messages[index], speakers, f"{field}.{index}", left_out) for index in order)
    return list(chain.from_iterable(named))


def _order(messages: list[Any], left_out: Counter[str]) -> list[int]:
    """Return the indices of messages in the order of the first of the usual times that all have, if any."""
    first = messages[0] if messages and all(isinstance(message, dict) for message in messages) else {}
    names = {plain_column(name): name for name in first}
    is_useless = False
    for name in (names[time] for time in TIMES if time in names):
        given = [message.get(name) for message in messages]
        times = list(map(parsed_time, given))
        if None in times:
            is_useless |= any(value not in (None, "") and value == value for value in given)
        elif len(set(map(time_form, given))) > 1:
            is_useless = True
        elif len({*times}) > 1:
            return in_order(cast("list[float]", times))
    if is_useless:
        left_out[USELESS_TIMES] += 1
    return list(range(len(messages)))


def _utterances(
    raw: Raw, message: Any, speakers: Mapping[str, Role], field: str, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    if not isinstance(message, dict):
        raise raw.error("found no object with a speaker and a text", field=field)
    text = next(filter(str.strip, (text_of(message.get(name)) for name in TEXTS)), "")
    if not text:
        left_out[EMPTY] += 1
        return
    key = _key(message, SPEAKERS)
    speaker = message.get(key)
    if isinstance(speaker, dict):  # Discord's authors
        speaker = speaker.get("name") or speaker
    role = role_of(speaker, speakers, raw, f"{field}.{key or SPEAKERS[0]}")
    if role == "skip":
        left_out[SKIPPED] += 1
        return
    is_answer = message.get("is_answer")
    yield {
        "speaker": role,
        "text": text,
        "intents": message.get("intents") or (),
        "is_answer": None if is_answer == "" else is_answer,
    }


def _key(message: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of some names under which a message has a value, empty if there is none."""
    return next((name for name in names if message.get(name) is not None), "")


def text_of(value: Any) -> str:
    """Return a text that is a string, a number, an object that has it under a usual name, or a list of parts, some of
    them without text; else an empty one.
    """
    if isinstance(value, dict):
        return text_of(value.get(_key(value, TEXTS)))
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in value]
        return "".join(text_of(part) for part in parts if isinstance(part, str | dict))
    return str(value) if isinstance(value, str | int | float) and value == value else ""


def _messages(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    return next(((name, value) for name in LISTS if isinstance(value := json_in(row.get(name)), list)), ("", []))


def _detects_messages(path: Path) -> bool:
    return not _detects_jsonl(path) and any(map(_is_conversation, first_rows(path, _NUM_TRIED)))


jsonl = Reader(_open_jsonl, _detects_jsonl, options=("speakers",))
messages = Reader(_open_messages, _detects_messages, options=("speakers",))
