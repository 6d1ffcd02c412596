"""Chat logs: one conversation a record, with a list of messages, each of which has a speaker and a text.

    {"messages": [{"role": "user" | "assistant" | "system" | ..., "content": str}]}        OpenAI
    {"conversations": [{"from": "human" | "gpt" | ..., "value": str}]}                      ShareGPT
    {"chats": {"list": [{"id": int, "messages": [{"from": str, "text": str | list}]}]}}     Telegram's export
    [{"chat_messages": [{"sender": str, "text": str}]}], [{"mapping": {...}}]               Claude's, ChatGPT's export

as JSONL, as one JSON document, as Parquet, or saved by the datasets library. `id`, `domain` and `split` may be left
out. `is_answer`: true or false of a message says whether it is an accepted answer. Messages without text (pictures,
calls of tools) are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from icalib.data.schema import Dialogue, Split
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.conversations import conversation, is_conversation
from icalib.data.sources.jsonl import jsonl
from icalib.data.sources.records import Raw
from icalib.data.sources.rows import first_rows, read_rows, row_files
from icalib.data.sources.speakers import NO_SPEAKERS, Role

_NUM_TRIED = 5
"""Records that detection looks at."""


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS) -> Source:
    splits: dict[Path, Split | None] = {file.path: file.split for file in row_files(path)}

    left_out = Counter[str]()

    def parse(raw: Raw) -> Dialogue | None:
        return conversation(raw, splits[raw.path], speakers, left_out)

    return Source(tuple(splits), dialogues_in(splits, _rows, parse), left_out=left_out)


def _rows(file: Path) -> Iterator[Raw]:
    return read_rows(file, is_conversation)


def _detects(path: Path) -> bool:
    return not jsonl.detects(path) and any(map(is_conversation, first_rows(path, _NUM_TRIED, is_conversation)))


messages = Reader(_open, _detects, options=("speakers",))
