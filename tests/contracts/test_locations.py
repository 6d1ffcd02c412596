"""What goes to other machines, or into folders that they read, names files by location, never by local path."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from icalib.core.component import Settings
from icalib.core.paths import Stored
from icalib.distributed.sweep import TrialJob
from icalib.generation.generator import GenerateJob
from icalib.pipeline.run import RunSettings
from icalib.scoring.job import ScoreJob
from icalib.sweeps.folder import SweepSettings
from icalib.training.job import AnyTrainJob

TRAIN_JOBS = get_args(get_args(AnyTrainJob)[0])


@pytest.mark.parametrize("travels", [RunSettings, SweepSettings, TrialJob, ScoreJob, GenerateJob, *TRAIN_JOBS])
def test_every_path_that_travels_is_a_location(travels: type[Settings]) -> None:
    kinds = [kind for hint in get_type_hints(travels, include_extras=True).values() for kind in path_types(hint)]
    assert kinds
    assert all(kind == Stored for kind in kinds)


def path_types(hint: Any) -> list[Any]:
    """Where a type mentions paths: as `Stored`, or plainly."""
    if hint == Stored or hint is Path:
        return [hint]
    return [kind for part in get_args(hint) for kind in path_types(part)]
