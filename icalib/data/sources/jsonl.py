"""Our own form: one dialogue a line.

    {"dialog_id": str, "source": str, "domain": str, "split": "train" | "validation" | "test",
     "utterances": [{"speaker": "user" | "agent", "text": str, "intents": [str, ...]}]}

`source`, `domain`, `split` and `intents` may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from icalib.data.schema import Dialogue
from icalib.data.sources.base import OnReject, Raw, Source, accepted, build, parse_json, read_lines, unique_dialogues


def open_jsonl(path: Path) -> Source:
    """Open a JSONL file."""

    def dialogues(on_reject: OnReject | None) -> Iterator[Dialogue]:
        return accepted(read_lines(path), unique_dialogues(_dialogue), on_reject)

    return Source("jsonl", (path,), dialogues)


def _dialogue(raw: Raw) -> Dialogue:
    return build(Dialogue, parse_json(raw), raw)
