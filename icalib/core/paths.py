"""Paths in settings that processes on other machines read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from icalib.core.storage import local_path, location


def _local(value: Any) -> Any:
    return str(local_path(value)) if isinstance(value, str | Path) else value  # as text: JSON has no paths


Stored = Annotated[
    Path, BeforeValidator(_local), PlainSerializer(location, return_type=str, when_used="json-unless-none")
]
"""A path that may stand for a location in an object store. JSON has the location, which is valid on every machine."""
