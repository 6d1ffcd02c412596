"""Pools as Label Studio's tasks with a labelling configuration, and its JSON export back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import quoteattr

from pydantic import BaseModel, ConfigDict

from icalib.data.schema import Pool
from icalib.data.sources.records import Raw, build
from icalib.labelling.annotations import NONE_OF_THESE, Annotation, Answer, numbered, right_of

_RIGHT, _INTENTS, _CONTEXT = "right", "intents", "context"


class _Data(BaseModel):
    pool_id: str
    candidates: list[str]
    context: list[dict[str, Any]]


class _Value(BaseModel):
    choices: list[str] = []


class _Result(BaseModel):
    from_name: str = ""
    value: _Value = _Value()


class _Annotation(BaseModel):
    id: Any = None
    completed_by: Any = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    was_cancelled: bool = False
    result: list[_Result] = []


class _Task(BaseModel):
    model_config = ConfigDict(extra="ignore")

    data: _Data
    annotations: list[_Annotation]


def task(pool: Pool, context_turns: int) -> dict[str, Any]:
    """Return a task, with as many turns as any context has."""
    turns = [utterance.text for utterance in pool.context]
    shown = {f"turn{n}": turns[n - 1] if n <= len(turns) else "(no utterance)" for n in range(1, context_turns + 1)}
    data = {
        "pool_id": pool.pool_id,
        _CONTEXT: [{"speaker": utterance.speaker, "text": utterance.text} for utterance in pool.context],
        "candidates": list(pool.candidates),
        "choices": [{"value": text} for text in [*numbered(pool), NONE_OF_THESE]],
        **shown,
    }
    return {"data": data}


def labelling_config(context_turns: int, intents: Sequence[str]) -> str:
    """Return the labelling configuration of a project (XML): the context as a chat, its candidates, and intents."""
    lines = [
        "<View>",
        '  <Header value="Context"/>',
        f'  <Paragraphs name="{_CONTEXT}" value="${_CONTEXT}" layout="dialogue" nameKey="speaker" textKey="text"/>',
        '  <Header value="Which of these answers are right?"/>',
        f'  <Choices name="{_RIGHT}" toName="{_CONTEXT}" choice="multiple" required="true" value="$choices"/>',
    ]
    for number in range(1, context_turns + 1 if intents else 1):
        lines += [
            f'  <Header value="Intents of utterance {number} (optional)" size="5"/>',
            f'  <Text name="turn{number}" value="$turn{number}"/>',
            f'  <Choices name="{_INTENTS}{number}" toName="turn{number}" choice="multiple" showInline="true">',
            *(f"    <Choice value={quoteattr(intent)}/>" for intent in intents),
            "  </Choices>",
        ]
    return "\n".join([*lines, "</View>", ""])


def is_task(record: Mapping[str, Any]) -> bool:
    """Return whether a record of a JSON file is one of Label Studio's JSON export."""
    return "annotations" in record and "data" in record


def read_task(raw: Raw) -> Iterator[Answer]:
    """Yield the answers to a task of a JSON export; a DataError says which field is not valid."""
    found = build(_Task, raw.value, raw)
    candidates = tuple(found.data.candidates)
    for number, one in enumerate(found.annotations or [_Annotation(was_cancelled=True)], 1):
        right = right_of(_choices(one, _RIGHT), candidates, raw, f"annotations.result.{_RIGHT}")
        annotation = None
        if right is not None and not one.was_cancelled:
            intents = _intents(one, found.data, raw)
            when = one.updated_at or one.created_at
            utc = when and (when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC))
            kept = intents if any(intents) else ()
            annotation = Annotation(found.data.pool_id, _annotator(one, number), utc, right, kept)
        yield Answer(raw, found.data.pool_id, candidates, annotation)


def _choices(annotation: _Annotation, name: str) -> tuple[str, ...]:
    return tuple(choice for one in annotation.result if one.from_name == name for choice in one.value.choices)


def _intents(annotation: _Annotation, data: _Data, raw: Raw) -> tuple[tuple[str, ...], ...]:
    """Return the intents of each utterance; a DataError names a field of intents of another one."""
    fields = [f"{_INTENTS}{turn}" for turn in range(1, len(data.context) + 1)]
    for one in annotation.result:
        if re.fullmatch(rf"{_INTENTS}\d+", one.from_name) and one.from_name not in fields and one.value.choices:
            raise raw.error(
                f"the task of pool {data.pool_id!r:.80} has {one.from_name}, but {len(fields)} utterances",
                "Take the intents away where they were given, or correct the utterance's number, from 1.",
                f"annotations.result.{one.from_name}",
            )
    return tuple(_choices(annotation, field) for field in fields)


def _annotator(annotation: _Annotation, number: int) -> str:
    """Return who gave an answer: an e-mail address where the export has it, else the user's number; without both, the
    answer's own, so that answers that disagree don't replace each other.
    """
    who = annotation.completed_by
    if isinstance(who, dict):
        who = who.get("email") or who.get("id")
    return f"answer {annotation.id or number}" if who in (None, "") else str(who)
