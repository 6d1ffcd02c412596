"""MSDialog (Qu et al. 2018), Complete and Intent: one JSON object from dialogue id to

{"title", "category", "utterances": [{"actor_type": "User" | "Agent", "utterance": str, "tags": "OQ GG", ...}]}

MANtIS has the same form with `intent` lists, so `forum_dialogue` serves both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icalib.data.schema import Dialogue, Split
from icalib.data.sources.base import OnReject, Raw, Source, accepted, build, json_members, spaced, unique_dialogues


def open_msdialog(path: Path) -> Source:
    """Open MSDialog-Complete.json or MSDialog-Intent.json; neither has a split."""

    def dialogue(raw: Raw) -> Dialogue:
        return forum_dialogue(raw, source="msdialog", split=None, intent_field="tags")

    def dialogues(on_reject: OnReject | None) -> Iterator[Dialogue]:
        return accepted(json_members(path), unique_dialogues(dialogue), on_reject)

    return Source("msdialog", (path,), dialogues)


def forum_dialogue(raw: Raw, *, source: str, split: Split | None, intent_field: str) -> Dialogue:
    """A member of MSDialog's or MANtIS' JSON as a dialogue.

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
    ours: dict[str, Any] = {}
    if "actor_type" in value:
        actor = value["actor_type"]
        ours["speaker"] = actor.lower() if isinstance(actor, str) else actor
    if "utterance" in value:
        ours["text"] = spaced(value["utterance"])
    if intent_field in value:
        ours["intents"] = _intents(value[intent_field])
    return ours


def _intents(value: Any) -> Any:
    """Tags come as one string (`"OQ GG"`, `"FD_PA"`) or as a list."""
    return [tag for tag in re.split(r"[\s_]+", value) if tag] if isinstance(value, str) else value
