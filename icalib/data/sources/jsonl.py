"""The JSONL format of icalib: one dialogue a line.

    {"dialog_id": str, "source": str, "domain": str, "split": "train" | "validation" | "test",
     "utterances": [{"speaker": "user" | "agent", "text": str, "intents": [str, ...], "is_answer": bool}]}

`dialog_id`, `source`, `domain`, `split`, `intents` and `is_answer` may be left out; other names of speakers are mapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icalib.data.schema import Dialogue
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.files import FIRST_LINE_BYTES, first_line, plain_name, read_lines
from icalib.data.sources.records import Raw, build, parse_json
from icalib.data.sources.rows import record_id
from icalib.data.sources.speakers import NO_SPEAKERS, Role, role_of

_OBJECT_OF_OBJECTS = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*\{')
"""The beginning of MSDialog's and MANtIS's files, all dialogues of which may be on one line."""


def _open(path: Path, speakers: Mapping[str, Role] = NO_SPEAKERS) -> Source:
    def parse(raw: Raw) -> Dialogue:
        value = parse_json(raw)
        if isinstance(value, dict):
            value = {**value, "dialog_id": _dialog_id(value, raw)}
            if isinstance(value.get("utterances"), list):
                value["utterances"] = _utterances(value["utterances"], speakers, raw)
        return build(Dialogue, value, raw)

    return Source((path,), dialogues_in((path,), read_lines, parse))


def _dialog_id(value: Mapping[str, Any], raw: Raw) -> Any:
    given = value.get("dialog_id")
    if given is None:
        return record_id(raw)
    return str(given) if isinstance(given, int) else given


def _utterances(utterances: list[Any], speakers: Mapping[str, Role], raw: Raw) -> list[Any]:
    """Return utterances with their speakers as `user` and `agent`; what is not valid stays as it is."""
    mapped: list[Any] = []
    for index, utterance in enumerate(utterances):
        if not isinstance(utterance, dict) or "speaker" not in utterance:
            mapped.append(utterance)
            continue
        role = role_of(utterance["speaker"], speakers, raw, f"utterances.{index}.speaker")
        if role != "skip":
            mapped.append({**utterance, "speaker": role})
    return mapped


def _detects(path: Path) -> bool:
    return path.is_file() and _is_dialogue(first_line(path), plain_name(path).endswith(".jsonl"))


def _is_dialogue(line: str, named_so: bool) -> bool:
    """Whether a line is a dialogue; one that can't be read counts as one where the file's name says so."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        is_cut = len(line.encode(errors="surrogateescape")) >= FIRST_LINE_BYTES - 1
        return '"utterances"' in line and not _OBJECT_OF_OBJECTS.match(line) if is_cut else named_so
    return isinstance(value, dict) and "utterances" in value


jsonl = Reader(_open, _detects, options=("speakers",))
