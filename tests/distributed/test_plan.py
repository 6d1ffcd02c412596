"""A plan's seconds against those of the run that it was made of, on the machines where both happen."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.drivers import ON_RAY
from helpers.runs import run_context, small_settings

from icalib.pipeline.plan import plan
from icalib.pipeline.run import run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_run_takes_the_time_that_was_planned(
    local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    settings, where = small_settings("bert", tiny_pools, tiny_bert), run_context(tmp_path, executor=ON_RAY)
    made = plan([settings], where)
    finished = run(settings, where)
    taken = [stage["seconds"] for stage in finished.stages if stage["name"] in finished.planned]
    assert len(taken) == len(made.stages)
    assert made.seconds[1] / 3 < sum(taken) < made.seconds[1] * 3
