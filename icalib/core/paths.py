"""Paths in settings that processes on other machines read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from icalib.core.component import Settings
from icalib.core.storage import local_path, location, pull


def _local(value: Any) -> Any:
    return str(local_path(value)) if isinstance(value, str | Path) else value  # as text: JSON has no paths


Stored = Annotated[
    Path, BeforeValidator(_local), PlainSerializer(location, return_type=str, when_used="json-unless-none")
]
"""A path that may stand for a location in an object store. JSON has the location, which is valid on every machine."""


def pull_all(job: Settings) -> None:
    """Download what the paths of a job from another machine stand for."""
    for path in _paths(dict(job)):
        pull(path)


def _paths(values: Mapping[str, Any]) -> Iterator[Path]:
    for value in values.values():
        if isinstance(value, Path):
            yield value
        elif isinstance(value, Mapping):
            yield from _paths(value)
