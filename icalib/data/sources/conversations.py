"""Records with a list of messages, as people and libraries write them, as dialogues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, cast

from icalib.data.schema import Dialogue, Split
from icalib.data.sources.files import SPLIT_WORDS
from icalib.data.sources.records import Raw, build
from icalib.data.sources.rows import record_id, row_of
from icalib.data.sources.speakers import Role, role_of

NO_TEXT = "conversations without a text of user or agent"
LISTS = ("messages", "conversations", "conversation", "chat_messages", "turns", "dialog", "dialogue", "utterances")
"""Fields of a record that may hold its messages."""
SPEAKERS = ("role", "from", "sender", "speaker", "author", "user", "name")
TEXTS = ("content", "value", "text", "message", "body")
IDS = ("dialog_id", "dialogue_id", "conversation_id", "chat_id", "thread_id", "ticket_id", "session_id", "id", "uuid")
DOMAINS = ("domain", "category", "topic")


def is_conversation(value: Any) -> bool:
    """Whether a value is a record with messages: objects of which one at least has a speaker and a text."""
    if not isinstance(value, dict):
        return False
    _, messages = _messages(cast("dict[str, Any]", value))
    return any(isinstance(message, dict) and _key(message, SPEAKERS) and _key(message, TEXTS) for message in messages)


def conversation(
    raw: Raw, split: Split | None, speakers: Mapping[str, Role], left_out: Counter[str]
) -> Dialogue | None:
    """Return a record as a dialogue, or None if user and agent say nothing in it.

    Args:
        raw: the record.
        split: the file's; None: the record's own, if it has one.
        speakers: what speakers are, by their names in the source.
        left_out: counts the records for which it returns None.

    Raises:
        DataError: no list of messages, or an unknown speaker.
    """
    row = row_of(raw)
    field, messages = _messages(row)
    if not field:
        raise raw.error(f"found no list of messages under any of {', '.join(LISTS)}")
    utterances = turns(raw, messages, speakers, field)
    if not utterances:
        left_out[NO_TEXT] += 1
        return None
    record = {
        "dialog_id": own_id(row, IDS) or record_id(raw),
        "domain": next((row[key] for key in DOMAINS if isinstance(row.get(key), str)), ""),
        "split": split or own_split(row),
        "utterances": utterances,
    }
    return build(Dialogue, record, raw, {"utterances": field})


def own_id(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first id that a row has under one of some names, empty if it has none."""
    return next((str(row[name]).strip() for name in names if isinstance(row.get(name), str | int)), "")


def own_split(row: Mapping[str, Any], name: str = "split") -> Split | None:
    """Return the split that a row names, in any of the usual words; None if it names none."""
    return SPLIT_WORDS.get(str(row.get(name, "")).strip().lower())


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
    role = role_of(_speaker(message.get(key)), speakers, raw, f"{field}.{key or SPEAKERS[0]}")
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


def _speaker(value: Any) -> Any:
    """Return a speaker's name; Discord and ChatGPT write an object."""
    if not isinstance(value, dict):
        return value
    if value.get("isBot") is True:
        return "bot"
    return value.get("role") or value.get("name")


def _text(value: Any) -> str:
    """Return a text that is a string, a list of parts (some without text), or an object with one of the two."""
    if isinstance(value, dict):
        value = value.get("parts", value.get("text"))
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
    if isinstance(row.get("mapping"), dict):
        return "mapping", _branch(row["mapping"], row.get("current_node"))
    return "", []


def _is_columns(value: Mapping[str, Any]) -> bool:
    """Whether an object is a sequence of objects as the datasets library may store one: an object of sequences."""
    return all(isinstance(column, list) for column in value.values()) and len(set(map(len, value.values()))) == 1


def _branch(nodes: Mapping[str, Any], last: Any) -> list[Any]:
    """Return the messages from the root of ChatGPT's tree to its last node."""
    messages: list[Any] = []
    seen = set[str]()
    while isinstance(last, str) and last not in seen and isinstance(nodes.get(last), dict):
        seen.add(last)
        if isinstance(nodes[last].get("message"), dict):
            messages.append(nodes[last]["message"])
        last = nodes[last].get("parent")
    return messages[::-1]
