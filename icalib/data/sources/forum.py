"""MSDialog (Qu et al. 2018) and MANtIS (Penha et al. 2019): one JSON object from dialogue id to

{"title", "category", "utterances": [{"actor_type": "User" | "Agent", "utterance": str, "is_answer": 0 | 1, ...}]}

`is_answer` marks the accepted answer. MSDialog has intents in `tags` ("OQ GG") and no splits; MANtIS has them in lists
called `intent`, on some dialogues, and a file for each split, merged_{train,dev,test}[_intents].json.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from icalib.data.schema import Dialogue, Split
from icalib.data.sources.base import Reader, Source, records_in, spaced
from icalib.data.sources.files import files_in, first_line, plain_name, required_files, split_in_name
from icalib.data.sources.json_text import json_members
from icalib.data.sources.records import Raw, build
from icalib.data.splits import text_key

_MANTIS_FIELDS = frozenset({"intent", "votes", "user_name"})
"""Fields of an utterance that MSDialog lacks, which has `tags`, `vote` and `affiliation` instead."""
_NAMES = {"actor_type": "speaker", "utterance": "text", "is_answer": "is_answer"}


def _open_msdialog(path: Path) -> Source:
    """Open one file, or a folder of JSON files.

    The dialogues of MSDialog-Intent are among those of MSDialog-Complete, where they have no intents; they are read
    once, with their intents.
    """
    files = tuple(sorted(required_files(path, ".json"), key=lambda file: not _has_intents(file)))
    with_intents: set[int] = set()
    left_out = Counter[str]()

    def parse(raw: Raw) -> Dialogue | None:
        source = "msdialog" if len(files) == 1 else plain_name(raw.path).removesuffix(".json")
        dialogue = _dialogue(raw, source, None, "tags")
        question = text_key(dialogue.utterances[0].text)
        if _has_intents(raw.path):
            with_intents.add(question)
        elif question in with_intents:
            left_out["dialogues that another file has with intents"] += 1
            return None
        return dialogue

    return Source(files, records_in(files, json_members, parse), left_out=left_out)


def _has_intents(file: Path) -> bool:
    return "intent" in plain_name(file)


def _open_mantis(path: Path) -> Source:
    """Open one file, or a folder of them; where it holds both, the files with intents are read."""
    files = required_files(path, ".json")
    files = tuple(filter(_has_intents, files)) or files

    def parse(raw: Raw) -> Dialogue:
        return _dialogue(raw, "mantis", split_in_name(raw.path), "intent")

    return Source(files, records_in(files, json_members, parse))


def _detects_msdialog(path: Path) -> bool:
    fields = _fields(path)
    return "actor_type" in fields and not fields & _MANTIS_FIELDS


def _detects_mantis(path: Path) -> bool:
    fields = _fields(path)
    return "actor_type" in fields and bool(fields & _MANTIS_FIELDS)


def _fields(path: Path) -> frozenset[str]:
    """Return the names of the fields that the utterances of the first file's first dialogue have."""
    for file in files_in(path, ".json")[:1]:
        raw = next(json_members(file), None) if first_line(file).lstrip().startswith("{") else None
        value = raw.value[1] if raw else None
        if isinstance(value, dict) and isinstance(value.get("utterances"), list):
            return frozenset(name for turn in value["utterances"] if isinstance(turn, dict) for name in turn)
    return frozenset()


def _dialogue(raw: Raw, source: str, split: Split | None, intent_field: str) -> Dialogue:
    """Return a member of the JSON object as a dialogue.

    Raises:
        DataError: with the source's own field name.
    """
    key, value = raw.value
    if not isinstance(value, dict) or not isinstance(value.get("utterances"), list):
        raise raw.error("found no list of utterances", field=f"{key}.utterances")
    record = {
        "dialog_id": f"{source}-{split}-{key}" if split else f"{source}-{key}",
        "source": source,
        "domain": value.get("category", ""),
        "split": split,
        "utterances": [_utterance(utterance, intent_field) for utterance in value["utterances"]],
    }
    names = {"speaker": "actor_type", "text": "utterance", "intents": intent_field, "domain": "category"}
    return build(Dialogue, record, raw, names)


def _utterance(value: Any, intent_field: str) -> Any:
    if not isinstance(value, dict):
        return value
    ours = {name: spaced(value[field]) for field, name in _NAMES.items() if field in value}
    if isinstance(actor := ours.get("speaker"), str):
        ours["speaker"] = actor.lower()
    if intent_field in value:
        tags = value[intent_field]  # one string, such as "OQ GG" or "FD_PA", or a list
        ours["intents"] = [tag for tag in re.split(r"[\s_]+", tags) if tag] if isinstance(tags, str) else tags
    return ours


msdialog = Reader(_open_msdialog, _detects_msdialog)
mantis = Reader(_open_mantis, _detects_mantis)
