"""Whatever is in a file, reading it gives records or an error that the user can fix."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icalib.core.errors import IcalibError
from icalib.data.preview import preview
from icalib.data.settings import PrepareSettings
from icalib.data.sources.readers import open_source

NAMES = (
    "id", "messages", "conversations", "role", "from", "content", "value", "text", "author",
    "conversation_id", "time", "sender", "query", "pos", "neg", "candidates", "label", "split", "chats", "list",
    "utterances",
)  # fmt: skip
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["user", "bot", "train", "1"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
records = st.lists(st.dictionaries(st.sampled_from(NAMES), values, min_size=1, max_size=6), min_size=1, max_size=4)
ROW_FORMATS = ("jsonl", "messages", "table", "ranking", None)


def read_all(path: Path, format: str | None) -> None:
    """Read with and without leaving records out, and look at a preview."""
    with suppress(IcalibError):
        source = open_source(path, format)
        for on_reject in (lambda error, raw: None, None):
            for read in (source.dialogues, source.answers, source.pools):
                list(read(on_reject))
        list(preview(path, PrepareSettings(format=format)))


@pytest.mark.parametrize("format", ROW_FORMATS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(rows=records, layout=st.sampled_from(["lines", "array"]))
def test_any_json(tmp_path_factory: pytest.TempPathFactory, format: str | None, rows: Any, layout: str) -> None:
    path = tmp_path_factory.mktemp("any") / "rows.json"
    path.write_text(json.dumps(rows) if layout == "array" else "\n".join(map(json.dumps, rows)))
    read_all(path, format)


@pytest.mark.parametrize("format", ROW_FORMATS)
def test_what_json_allows_and_nobody_writes(tmp_path: Path, format: str | None) -> None:
    deep = "[" * 900 + "]" * 900
    for value in ('"\\ud800"', deep, "NaN", "1e999", "1" * 400, "{}", "[null]", '[{"role": "user"}]'):
        for name in ("messages", "query", "text", "id", "sender", "time"):
            row = {key: f'"{key}"' for key in ("query", "pos", "neg", "sender", "text", "chat_id", "chat", "time")}
            line = ", ".join(f'"{key}": {text}' for key, text in (row | {name: value}).items())
            path = tmp_path / "rows.jsonl"
            path.write_text("{" + line + "}\n")
            read_all(path, format)
