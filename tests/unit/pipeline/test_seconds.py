"""How long a run took, by stage and in total."""

from __future__ import annotations

from pathlib import Path

from icalib.core.stage_cache import Stage, StageName
from icalib.pipeline.run import seconds_of


def stage(label: str, digest: str, seconds: float, *, reused: bool = False) -> Stage:
    return Stage(StageName(label), digest, Path(label), reused, seconds)


def test_a_stage_that_is_read_again_under_another_name_is_said_once() -> None:
    stages = [
        stage("tokens", "a", 5, reused=True),  # by an earlier run
        stage("teacher-scores", "b", 7),
        stage("scores", "b", 7, reused=True),
        stage("metrics", "c", 1),
    ]
    assert seconds_of(stages, 10) == {"tokens": 5, "teacher-scores": 7, "metrics": 1, "total": 15}
