"""The settings that a config.yaml records, also one of an earlier version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from icalib.core.component import validated_file
from icalib.pipeline.run import RunSettings


def recorded_settings(path: Path, config: Mapping[str, Any]) -> RunSettings:
    """Return the settings in a config.yaml, with what they stood for when it was written.

    Args:
        path: the file, for messages.
        config: what it has.

    Raises:
        RunFolderError: they aren't settings of a run.
    """
    fields = {name: value for name, value in config.items() if name != "version"}
    if isinstance(method := fields.get("settings"), dict):
        fields["settings"] = {"bi_encoder_training": None, **_without_kept_starts(method)}
    return validated_file(path, RunSettings, fields)


def _without_kept_starts(settings: Any) -> Any:
    """Return settings in which trainings that don't say whether they keep their start don't."""
    if not isinstance(settings, dict):
        return settings
    values = cast("dict[str, Any]", settings)
    defaults = {"keep_start": False} if "patience" in values else {}
    return {**defaults, **{name: _without_kept_starts(value) for name, value in values.items()}}
