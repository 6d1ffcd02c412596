"""Intents under other names: from a source's own labels to those that are learned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from icalib.core.errors import DataError
from icalib.core.text import shortened

_ROLES: tuple[Literal["user", "agent"], ...] = ("user", "agent")
OTHERS = "*"
"""Stands for every label that the map doesn't name."""

IntentMap = dict[Literal["user", "agent"], dict[str, tuple[str, ...]]]
"""Names of intents by role and label."""


def parsed_intent_map(given: object) -> IntentMap:
    """Return an intent map from a JSON file or from its content.

    The content is {label: intent} for both roles, or {"user": {label: intent}, "agent": {label: intent}}. Instead of an
    intent there may be a list of intents, or null for none. `*` stands for all other labels. Names that start with an
    underscore, such as `_note`, are left out.

    Raises:
        ValueError: it is not such a map.

    Example:
        >>> parsed_intent_map({"user": {"thanks": "PF"}, "agent": {"thanks": "GG", "*": None}})
        {'user': {'thanks': ('PF',)}, 'agent': {'thanks': ('GG',), '*': ()}}
    """
    content = _read(given) if isinstance(given, str | Path) else given
    if not isinstance(content, Mapping):
        raise ValueError(f"expected an object of labels and intents, found {shortened(str(content))}")
    named = {str(name): value for name, value in cast("Mapping[object, object]", content).items()}
    named = {name: value for name, value in named.items() if not name.startswith("_")}
    if not named:
        return {}
    if not any(isinstance(value, Mapping) for value in named.values()):
        return {role: _intents_by_label(named) for role in _ROLES}
    if unknown := [name for name in named if name not in _ROLES]:
        raise ValueError(f"expected the roles user and agent, found {shortened(unknown[0])}")
    return {role: _intents_by_label(named.get(role, {})) for role in _ROLES}


def mapped_intents(intent_map: IntentMap, speaker: Literal["user", "agent"], labels: Sequence[str]) -> tuple[str, ...]:
    """Return an utterance's intents by the map, each once; without a map its own labels.

    Raises:
        DataError: the map has no name for a label.
    """
    if not intent_map:
        return tuple(labels)
    names = intent_map[speaker]
    if missing := [label for label in labels if label not in names and OTHERS not in names]:
        raise DataError(
            f"the intent {missing[0]!r} of an utterance by the {speaker} isn't in the intent map",
            'Add it to the map, or "*" for all others ("*": null gives them none)',
            field="intents",
        )
    return tuple(dict.fromkeys(intent for label in labels for intent in names.get(label, names.get(OTHERS, ()))))


def _read(path: str | Path) -> Any:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # JSON can spell half of a surrogate pair, no file holds it
    except OSError as error:
        raise ValueError(f"{path} can't be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error})") from error
    return content


def _intents_by_label(given: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping):
        raise ValueError(f"expected an object of labels and intents for each role, found {shortened(str(given))}")
    return {
        str(label): _names(str(label), intents) for label, intents in cast("Mapping[object, object]", given).items()
    }


def _names(label: str, intents: object) -> tuple[str, ...]:
    found = [] if intents is None else [intents] if isinstance(intents, str) else intents
    if not isinstance(found, list | tuple):
        raise ValueError(f"expected an intent, a list of intents or null for {shortened(label)}, found {intents!r}")
    names = cast("list[object] | tuple[object, ...]", found)
    if wrong := [name for name in names if not (isinstance(name, str) and name.strip())]:
        raise ValueError(f"expected names of intents for {shortened(label)}, found {wrong[0]!r}")
    return tuple(str(name).strip() for name in names)
