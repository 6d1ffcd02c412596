"""Chat logs: one conversation a record, with a list of messages, each of which has a speaker and a text.

    {"messages": [{"role": "user" | "assistant" | "system" | ..., "content": str}]}        OpenAI
    {"conversations": [{"from": "human" | "gpt" | ..., "value": str}]}                      ShareGPT
    {"chats": {"list": [{"id": int, "messages": [{"from": str, "text": str | list}]}]}}     Telegram's export

as JSONL, as one JSON document, as Parquet, or saved by the datasets library. `id`, `domain` and `split` may be left
out. `is_answer`: true or false of a message says whether it is an accepted answer. Messages without text (pictures,
calls of tools) are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

from icalib.data.schema import Dialogue, Split
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.jsonl import jsonl
from icalib.data.sources.records import Raw, build
from icalib.data.sources.rows import first_rows, own_id, own_split, read_rows, record_id, row_files, row_of
from icalib.data.sources.speakers import NO_SPEAKERS, Role, role_of

NO_TEXT = "conversations without a text of user or agent"
LISTS = ("messages", "conversations", "conversation", "chat_messages", "turns", "dialog", "dialogue", "utterances")
"""Fields of a record that may hold its messages."""
SPEAKERS = ("role", "from", "sender", "speaker", "author", "user", "name")
TEXTS = ("content", "value", "text", "message", "body")
IDS = ("dialog_id", "dialogue_id", "conversation_id", "chat_id", "thread_id", "ticket_id", "session_id", "id", "uuid")
DOMAINS = ("domain", "category", "topic")
_NUM_TRIED = 5
"""Records that detection looks at."""


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS) -> Source:
    splits: dict[Path, Split | None] = {file.path: file.split for file in row_files(path)}
    left_out = Counter[str]()

    def parse(raw: Raw) -> Dialogue | None:
        dialogue = _dialogue(raw, splits[raw.path], speakers)
        if dialogue is None:
            left_out[NO_TEXT] += 1
        return dialogue

    return Source(tuple(splits), dialogues_in(splits, _rows, parse), left_out=left_out)


def _rows(file: Path) -> Iterator[Raw]:
    return read_rows(file, is_conversation)


def _dialogue(raw: Raw, split: Split | None, speakers: Mapping[str, Role]) -> Dialogue | None:
    """Return a record as a dialogue, or None if user and agent say nothing in it."""
    row = row_of(raw)
    field, messages = _messages(row)
    if not field:
        raise raw.error(f"found no list of messages under any of {', '.join(LISTS)}")
    utterances = turns(raw, messages, speakers, field)
    if not utterances:
        return None
    record = {
        "dialog_id": own_id(row, *IDS) or record_id(raw),
        "domain": next((row[key] for key in DOMAINS if isinstance(row.get(key), str)), ""),
        "split": split or own_split(row),
        "utterances": utterances,
    }
    return build(Dialogue, record, raw, {"utterances": field})


def is_conversation(value: Any) -> bool:
    """Whether a value is a record with messages: objects of which one at least has a speaker and a text."""
    if not isinstance(value, dict):
        return False
    _, messages = _messages(cast("dict[str, Any]", value))
    return any(isinstance(message, dict) and _key(message, SPEAKERS) and _key(message, TEXTS) for message in messages)


def turns(raw: Raw, messages: list[Any], speakers: Mapping[str, Role], field: str) -> list[dict[str, Any]]:
    """Return messages as utterances; those without text and those of skipped speakers are left out.

    Raises:
        DataError: a message that is no object, or an unknown speaker.
    """
    named = (_utterances(raw, message, speakers, f"{field}.{index}") for index, message in enumerate(messages))
    return list(chain.from_iterable(named))


def _utterances(raw: Raw, message: Any, speakers: Mapping[str, Role], field: str) -> Iterator[dict[str, Any]]:
    """Yield a message as an utterance, or nothing."""
    if not isinstance(message, dict):
        raise raw.error("found no object with a speaker and a text", field=field)
    text = _text(message.get(_key(message, TEXTS)))
    if not text.strip():
        return
    key = _key(message, SPEAKERS)
    speaker = message.get(key)
    if isinstance(speaker, dict):  # Discord's authors
        speaker = speaker.get("name")
    role = role_of(speaker, speakers, raw, f"{field}.{key or SPEAKERS[0]}")
    if role != "skip":
        intents, is_answer = message.get("intents"), message.get("is_answer")
        yield {
            "speaker": role,
            "text": text,
            "intents": intents if isinstance(intents, list | tuple) else (),
            "is_answer": is_answer if isinstance(is_answer, bool) else None,
        }


def _key(message: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of some names under which a message has a value, empty if there is none."""
    return next((name for name in names if message.get(name) is not None), "")


def _text(value: Any) -> str:
    """Return a text that is a string or a list of parts, some of them without text."""
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in value]
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _messages(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the name and the value of the field that holds a record's messages, or an empty name."""
    for name in LISTS:
        value = row.get(name)
        if isinstance(value, list):
            return name, value
        if isinstance(value, dict) and _is_columns(value):
            return name, [dict(zip(value, fields, strict=True)) for fields in zip(*value.values(), strict=True)]
    return "", []


def _is_columns(value: Mapping[str, Any]) -> bool:
    """Whether an object is a sequence of objects as the datasets library may store one: an object of sequences."""
    return all(isinstance(column, list) for column in value.values()) and len(set(map(len, value.values()))) == 1


def _detects(path: Path) -> bool:
    return not jsonl.detects(path) and any(map(is_conversation, first_rows(path, _NUM_TRIED, is_conversation)))


messages = Reader(_open, _detects, options=("speakers",))
