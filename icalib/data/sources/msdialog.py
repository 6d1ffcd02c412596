"""MSDialog (Qu et al. 2018), Complete and Intent: forum JSON with intents in `tags` ("OQ GG"), without splits.

A folder may hold both. The dialogues of MSDialog-Intent are among those of MSDialog-Complete, where they have no
intents; they are read once, with their intents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from icalib.core.errors import DataError
from icalib.data.schema import Dialogue
from icalib.data.sources.base import Reader, Source, dialogues_in
from icalib.data.sources.files import plain_name
from icalib.data.sources.forum import MANTIS_FIELDS, forum_dialogue, forum_fields
from icalib.data.sources.json_text import json_members
from icalib.data.sources.records import Raw
from icalib.data.splits import text_key


def _open(path: Path) -> Source:
    files = sorted(_files(path), key=lambda file: not _has_intents(file))  # those with intents first
    if not files:
        raise DataError("found no JSON file", "Name the folder that holds them, or one file.", path=path)
    with_intents: set[int] = set()
    left_out = Counter[str]()

    def parse(raw: Raw) -> Dialogue | None:
        source = "msdialog" if len(files) == 1 else plain_name(raw.path).removesuffix(".json")
        dialogue = forum_dialogue(raw, source=source, split=None, intent_field="tags")
        question = text_key(dialogue.utterances[0].text)
        if _has_intents(raw.path):
            with_intents.add(question)
        elif question in with_intents:
            left_out["dialogues that another file has with intents"] += 1
            return None
        return dialogue

    return Source(tuple(files), dialogues_in(files, json_members, parse), left_out=left_out)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (file for file in sorted(path.iterdir()) if plain_name(file).endswith(".json"))


def _has_intents(file: Path) -> bool:
    return "intent" in plain_name(file)


def _detects(path: Path) -> bool:
    if path.is_file():
        return _is_msdialog(path)
    try:
        found = [_is_msdialog(file) for file in _files(path)]
    except DataError:  # a JSON file of another format
        return False
    return bool(found) and all(found)


def _is_msdialog(file: Path) -> bool:
    fields = forum_fields(file)
    return fields is not None and not fields & MANTIS_FIELDS


msdialog = Reader(_open, _detects)
