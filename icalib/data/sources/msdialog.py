"""MSDialog (Qu et al. 2018), Complete and Intent: forum JSON with intents in `tags` ("OQ GG"), without splits."""

from __future__ import annotations

from pathlib import Path

from icalib.data.schema import Dialogue
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.forum import MANTIS_FIELDS, forum_dialogue, forum_fields
from icalib.data.sources.json_object import json_members
from icalib.data.sources.records import Raw


def _open(path: Path) -> Source:
    return Source((path,), dialogues_in((path,), json_members, _dialogue))


def _dialogue(raw: Raw) -> Dialogue:
    return forum_dialogue(raw, source="msdialog", split=None, intent_field="tags")


def _detects(path: Path) -> bool:
    fields = forum_fields(path)
    return fields is not None and not fields & MANTIS_FIELDS


msdialog = Reader(_open, _detects)
