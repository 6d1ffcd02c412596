"""A plan against the run that it was made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.runs import Silent, run_context, small_settings

from icalib.core.files import read_json
from icalib.pipeline.plan import plan
from icalib.pipeline.run import run

pytestmark = [pytest.mark.ray, pytest.mark.long]


def test_the_plan_counts_what_the_run_does(local_ray: None, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    settings, where = small_settings("bert", tiny_pools, tiny_bert), run_context(tmp_path, Silent())
    made = plan([settings], where)
    finished = run(settings, where)
    taken = {stage["name"]: stage for stage in finished.stages if stage["name"] in finished.planned}
    assert list(taken) == [stage.name for stage in made.stages]
    for stage in made.stages:
        result = Path(taken[stage.name]["path"]) / "result.json"
        if result.is_file():
            assert stage.updates == read_json(result)["updates"]
    seconds = sum(stage["seconds"] for stage in taken.values())
    assert made.seconds[1] / 3 < seconds < made.seconds[1] * 3
    again = plan([settings, settings.model_copy(update={"seed": 2})], where)
    assert again.reused == 1  # post-training
    assert again.stages[0] == made.stages[0]  # nothing is measured anew
