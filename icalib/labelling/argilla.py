"""Argilla's records, as `dataset.records.to_list` and `to_json` give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Field

from icalib.data.sources.records import Raw, build
from icalib.labelling.annotations import Annotation, Answer, right_of

_FLAT = "right.responses"


class _Response(BaseModel):
    value: str | list[str] | None = None
    user_id: str | None = None
    status: str | None = None


class _Flat(BaseModel):
    values: list[str | list[str] | None] | None = Field(alias=_FLAT)
    users: list[str | None] | None = Field(default=None, alias=f"{_FLAT}.users")
    states: list[str | None] | None = Field(default=None, alias=f"{_FLAT}.status")


class _Record(BaseModel):
    id: str
    candidates: list[str]
    responses: list[_Response]


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record of a JSON file is one of Argilla's, nested or flat."""
    return "id" in record and ("fields" in record or "candidates" in record)


def read_record(raw: Raw) -> Iterator[Answer]:
    """Yield the answers to a record; responses that were not submitted are unfinished."""
    value: dict[str, Any] = raw.value
    fields = {**value, **_mapping(value.get("fields"))}
    texts = fields.get("candidates")
    record = {
        "id": value.get("id"),
        "candidates": [line.partition(". ")[2] for line in texts.splitlines()] if isinstance(texts, str) else None,
        "responses": _flat(raw) if _FLAT in value else _mapping(value.get("responses")).get("right", []),
    }
    found = build(_Record, record, raw)
    for response in found.responses or [_Response(status="pending")]:
        chosen = response.value or []
        right = right_of([chosen] if isinstance(chosen, str) else chosen, found.candidates, raw, "responses.right")
        annotation = None
        if right is not None and response.status in (None, "submitted"):
            annotation = Annotation(found.id, str(response.user_id), None, right)
        yield Answer(raw, found.id, tuple(found.candidates), annotation)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _flat(raw: Raw) -> list[dict[str, Any]]:
    found = build(_Flat, raw.value, raw)
    values = found.values or []
    users, states = (given or [None] * len(values) for given in (found.users, found.states))
    rows = zip(values, users, states, strict=False)
    return [{"value": answer, "user_id": user, "status": state} for answer, user, state in rows]
