"""What goes to other machines, or into folders that they read, names files by location, never by local path."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from helpers.discovery import settings_classes

from icalib.core.component import Settings, Stored
from icalib.core.job import Artifact


def path_types(hint: Any) -> list[Any]:
    """Return how a type names paths: as `Stored`, or plainly."""
    if hint is Artifact:
        return [Stored]
    if get_origin(hint) is Annotated and set(get_args(Stored)[1:]) <= set(get_args(hint)[1:]):
        return [Stored]
    if hint is Path:
        return [hint]
    return [found for part in get_args(hint) for found in path_types(part)]


def paths_of(settings: type[Settings]) -> list[Any]:
    hints = get_type_hints(settings, include_extras=True).values()
    return [found for hint in hints for found in path_types(hint)]


WITH_PATHS = sorted({found for found in settings_classes() if paths_of(found)}, key=lambda found: found.__name__)


def test_jobs_and_settings_of_runs_and_sweeps_are_among_them() -> None:
    names = {found.__name__ for found in WITH_PATHS}
    wanted = {"RunConfig", "SweepSettings", "TrialJob", "ColumnJob", "GenerateJob", "CrossEncoderJob", "GeneratorJob"}
    assert names >= wanted


@pytest.mark.parametrize("travels", WITH_PATHS, ids=lambda found: found.__name__)
def test_every_path_that_travels_is_a_location(travels: type[Settings]) -> None:
    assert all(found == Stored for found in paths_of(travels))
