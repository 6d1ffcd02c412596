"""A plan against the run that it was made of: the same jobs, so the same digests, and as many updates."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.runs import run_context, small_settings

from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.pipeline.plan import count, plan
from icalib.pipeline.run import RunSettings, run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def bert(tiny_pools: Path, tiny_bert: Path) -> RunSettings:
    return small_settings("bert", tiny_pools, tiny_bert)


def digests_of(finished: RunFolder) -> dict[str, str]:
    return {stage["name"]: stage["digest"] for stage in finished.stages}


def planned_digests(settings: RunSettings, runs: Path) -> dict[str, str]:
    return {work.name: work.digest for work in count(settings, run_context(runs)).works}


def test_all_digests_of_a_supervised_run_are_known_before(bert: RunSettings, runs: Path) -> None:
    planned = planned_digests(bert, runs)
    taken = digests_of(run(bert, run_context(runs)))
    assert list(planned) == ["post-training", "teacher", "validation/scores", "test/scores"]
    assert planned.items() <= taken.items()


def test_those_of_self_training_are_known_up_to_the_first_student(
    runs: Path, tiny_pools: Path, tiny_bert: Path
) -> None:
    icast = small_settings("icast", tiny_pools, tiny_bert)
    planned = planned_digests(icast, runs)
    taken = digests_of(run(icast, run_context(runs)))
    assert taken.keys() - planned.keys() == {"tokens", "round-1/pseudo-labels"}
    same = [name for name, digest in planned.items() if digest == taken[name]]
    assert same == ["post-training", "teacher", "round-1/scores"]


def test_the_plan_counts_what_the_run_does(bert: RunSettings, runs: Path) -> None:
    settings, where = bert.model_copy(update={"experiment": "planned"}), run_context(runs)
    made = plan([settings], where)
    finished = run(settings, where)
    taken = {stage["name"]: stage for stage in finished.stages if stage["name"] in finished.planned}
    assert list(taken) == [stage.name for stage in made.stages]
    for stage in made.stages:
        result = Path(taken[stage.name]["path"]) / "result.json"
        if result.is_file():
            assert stage.updates == read_json(result)["updates"]
    again = plan([settings, settings.model_copy(update={"seed": 2})], where)
    assert again.reused == 1  # post-training
    assert again.stages[0] == made.stages[0]  # nothing is measured anew
