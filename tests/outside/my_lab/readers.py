"""A reader for exports of a ticket system: one JSON object a line.

{"ticket": 17, "group": "printers", "comments": [{"from": "requester", "body": "It hums."}, ...]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icalib.data.sources import Dialogue, Raw, Reader, Source, build, first_line, parse_json, read_lines, records_in

SPEAKERS = {"requester": "user", "agent": "agent"}
NAMES = {"dialog_id": "ticket", "domain": "group", "utterances": "comments", "speaker": "from", "text": "body"}


def open_export(path: Path) -> Source:
    return Source(files=(path,), dialogues=records_in((path,), read_lines, ticket))


def ticket(raw: Raw) -> Dialogue:
    value = parse_json(raw)
    if not isinstance(value, dict) or not isinstance(value.get("comments"), list):
        raise raw.error("found no list of comments", field="comments")
    record = {
        "dialog_id": str(value.get("ticket", "")),
        "domain": value.get("group", ""),
        "utterances": [utterance(comment) for comment in value["comments"]],
    }
    return build(Dialogue, record, raw, NAMES)


def utterance(comment: Any) -> Any:
    if not isinstance(comment, dict):
        return comment
    speaker = comment.get("from")
    return {"speaker": SPEAKERS.get(str(speaker), speaker), "text": comment.get("body")}


def is_export(path: Path) -> bool:
    return path.is_file() and first_line(path).startswith('{"ticket"')


zendesk = Reader(open_export, detects=is_export)
