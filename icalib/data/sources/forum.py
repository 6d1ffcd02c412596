"""What the JSON of MSDialog and MANtIS have in common: one object from dialogue id to

{"title", "category", "utterances": [{"actor_type": "User" | "Agent", "utterance": str, "is_answer": 0 | 1, ...}]}

with the intents under a name of each corpus's own. `is_answer` marks the accepted answer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.data.schema import Dialogue, Split
from icalib.data.sources.base import spaced
from icalib.data.sources.files import first_line
from icalib.data.sources.json_text import json_members
from icalib.data.sources.records import Raw, build

MANTIS_FIELDS = frozenset({"intent", "votes", "user_name"})
"""Fields of an utterance that MSDialog lacks, which has `tags`, `vote` and `affiliation` instead."""


def forum_dialogue(raw: Raw, *, source: str, split: Split | None, intent_field: str) -> Dialogue:
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


def forum_fields(path: Path) -> frozenset[str] | None:
    """Return the names of the fields that the first dialogue's utterances have; None if a path is no forum JSON file.

    Raises:
        DataError: broken JSON, or an object without members.
    """
    if not path.is_file() or not first_line(path).lstrip().startswith("{"):
        return None
    first = next(json_members(path), None)
    if first is None:
        raise DataError("the JSON object is empty", "Choose a file with dialogues.", path=path)
    _, value = first.value
    if not isinstance(value, dict) or not isinstance(value.get("utterances"), list):
        return None
    return frozenset(field for utterance in value["utterances"] if isinstance(utterance, dict) for field in utterance)


def _utterance(value: Any, intent_field: str) -> Any:
    if not isinstance(value, dict):
        return value
    ours: dict[str, Any] = {}
    if "actor_type" in value:
        actor = value["actor_type"]
        ours["speaker"] = actor.lower() if isinstance(actor, str) else actor
    if "utterance" in value:
        ours["text"] = spaced(value["utterance"])
    if "is_answer" in value:
        ours["is_answer"] = value["is_answer"]
    if intent_field in value:
        ours["intents"] = _intents(value[intent_field])
    return ours


def _intents(value: Any) -> Any:
    """Split tags that are one string (`"OQ GG"`, `"FD_PA"`); a list stays as it is."""
    return [tag for tag in re.split(r"[\s_]+", value) if tag] if isinstance(value, str) else value
