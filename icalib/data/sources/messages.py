"""One dialogue a record, with a list of utterances or messages, each of which has a speaker and a text.

`jsonl`, icalib's own, one dialogue a line; all but `speaker` and `text` may be left out:

    {"dialog_id": str, "source": str, "domain": str, "split": "train" | "validation" | "test",
     "utterances": [{"speaker": "user" | "agent", "text": str, "intents": [str, ...], "is_answer": bool}]}

`messages`, chat logs:

    {"messages": [{"role": "user" | "assistant" | "system" | ..., "content": str}]}        OpenAI
    {"conversations": [{"from": "human" | "gpt" | ..., "value": str}]}                      ShareGPT
    {"id": int, "messages": [{"from": str, "text": str | list}]}                 one chat of Telegram's export

as JSONL, as a JSON array or as Parquet. `id`, `domain` and `split` may be left out. `is_answer` (true, false, 1 or
0) of a message says whether it is an accepted answer. Messages without text (pictures, calls of tools) are left out.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from icalib.core.errors import DataError
from icalib.core.text import abbreviated
from icalib.data.schema import Dialogue
from icalib.data.sources.files import plain_name, read_lines, split_in_name
from icalib.data.sources.records import Raw, Reader, Source, build, records_in
from icalib.data.sources.rows import first_rows, own_id, read_rows, record_id, row_files, row_of, split_of_row

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
    shown = str(speaker).strip() if isinstance(speaker, str | int | bool) else ""
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
LISTS = ("messages", "conversations", "conversation", "chat_messages", "turns", "dialog", "dialogue", "utterances")
"""Fields of a record that may hold its messages."""
SPEAKERS = ("role", "from", "sender", "speaker", "author", "user", "name")
TEXTS = ("content", "value", "text", "message", "body")
IDS = ("dialog_id", "dialogue_id", "conversation_id", "chat_id", "thread_id", "ticket_id", "session_id", "id", "uuid")
DOMAINS = ("domain", "category", "topic")
_NUM_TRIED = 5
"""Records that detection looks at."""


def _open_jsonl(path: Path, speakers: Mapping[str, Role]) -> Source:
    def dialogue(raw: Raw) -> Dialogue:
        row = row_of(raw)
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
            if role != "skip":
                yield {**utterance, "speaker": role}

    return Source((path,), records_in((path,), read_lines, dialogue))


def _detects_jsonl(path: Path) -> bool:
    """Whether the first line is a dialogue, or can't be read in a file that is named so."""
    if not path.is_file():
        return False
    with suppress(DataError):
        return any("utterances" in row_of(line) for line in islice(read_lines(path), 1))
    return plain_name(path).endswith(".jsonl")


def _open_messages(path: Path, speakers: Mapping[str, Role]) -> Source:
    left_out = Counter[str]()

    def dialogue(raw: Raw) -> Dialogue | None:
        row = row_of(raw)
        field, messages = _messages(row)
        if not field:
            raise raw.error(f"found no list of messages under any of {', '.join(LISTS)}")
        utterances = turns(raw, messages, speakers, field)
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
    """Whether a row has messages: objects of which one at least has a speaker and a text."""
    _, messages = _messages(row)
    return any(isinstance(message, dict) and _key(message, SPEAKERS) and _key(message, TEXTS) for message in messages)


def turns(raw: Raw, messages: list[Any], speakers: Mapping[str, Role], field: str) -> list[dict[str, Any]]:
    """Return messages as utterances; those without text and those of skipped speakers are left out."""
    named = (_utterances(raw, message, speakers, f"{field}.{index}") for index, message in enumerate(messages))
    return list(chain.from_iterable(named))


def _utterances(raw: Raw, message: Any, speakers: Mapping[str, Role], field: str) -> Iterator[dict[str, Any]]:
    if not isinstance(message, dict):
        raise raw.error("found no object with a speaker and a text", field=field)
    text = text_of(message.get(_key(message, TEXTS)))
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
            "is_answer": None if is_answer == "" else is_answer,
        }


def _key(message: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of some names under which a message has a value, empty if there is none."""
    return next((name for name in names if message.get(name) is not None), "")


def text_of(value: Any) -> str:
    """Return a text that is a string, a number, or a list of parts, some of them without text; else an empty one."""
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in value]
        return "".join(part for part in parts if isinstance(part, str))
    return str(value) if isinstance(value, str | int | float) and value == value else ""


def _messages(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    return next(((name, value) for name in LISTS if isinstance(value := row.get(name), list)), ("", []))


def _detects_messages(path: Path) -> bool:
    return not _detects_jsonl(path) and any(map(_is_conversation, first_rows(path, _NUM_TRIED)))


jsonl = Reader(_open_jsonl, _detects_jsonl, options=("speakers",))
messages = Reader(_open_messages, _detects_messages, options=("speakers",))
