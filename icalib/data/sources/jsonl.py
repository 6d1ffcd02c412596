"""The JSONL format of icalib: one dialogue a line.

    {"dialog_id": str, "source": str, "domain": str, "split": "train" | "validation" | "test",
     "utterances": [{"speaker": "user" | "agent", "text": str, "intents": [str, ...]}]}

`source`, `domain`, `split` and `intents` may be left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from icalib.data.schema import Dialogue
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.files import first_line, plain_name, read_lines
from icalib.data.sources.records import Raw, build, parse_json


def _open(path: Path) -> Source:
    return Source((path,), dialogues_in((path,), read_lines, _dialogue))


def _dialogue(raw: Raw) -> Dialogue:
    return build(Dialogue, parse_json(raw), raw)


def _detects(path: Path) -> bool:
    return path.is_file() and (plain_name(path).endswith(".jsonl") or _is_dialogue(first_line(path)))


def _is_dialogue(line: str) -> bool:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "utterances" in value


jsonl = Reader(_open, _detects)
