"""`--dry` against the runs that it lists: the same stages, cached where they are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from helpers.runs import run_context, small_settings
from rich.console import Console

from icalib.core.component import has_setting
from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import Stage
from icalib.methods.catalogue import load_method, method_names
from icalib.pipeline.config import RunConfig
from icalib.pipeline.dry import dry
from icalib.pipeline.run import run
from icalib.reports.terminal import print_stages

TEACHER = ["tokens", "domain-pretraining", "teacher", "round-1/scores-cross", "round-1/scores"]


@pytest.fixture(scope="module")
def tsst(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    return small_settings("tsst", tiny_pools, tiny_bert)


@pytest.fixture(scope="module")
def before(tsst: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> list[Stage]:
    return dry([tsst], tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def finished(tsst: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(tsst, run_context(tmp_path_factory.mktemp("runs")))


def runs_of(finished: RunFolder) -> Path:
    return finished.path.parent.parent


def shown(stages: list[Stage]) -> str:
    stream = io.StringIO()
    print_stages(stages, Console(file=stream, width=160))
    return " ".join(stream.getvalue().split())


def test_stages_and_digests_are_those_of_the_run(before: list[Stage], finished: RunFolder) -> None:
    taken = {stage["name"]: stage["digest"] for stage in finished.stages}
    assert [str(stage.name) for stage in before] == list(taken)
    same = [str(stage.name) for stage in before if stage.digest == taken[str(stage.name)]]
    assert same[:5] == TEACHER
    assert not {"round-1/student", "validation/scores", "test/scores"} & set(same)  # the pseudo labels aren't known


def test_all_stages_of_a_finished_run_are_cached(tsst: RunConfig, finished: RunFolder) -> None:
    again = dry([tsst], runs_of(finished))
    assert all(stage.reused for stage in again)
    assert {stage.digest for stage in again} == {stage["digest"] for stage in finished.stages}
    assert not any(stage.reused for stage in dry([tsst], runs_of(finished), fresh=True))


def test_shared_stages_are_listed_once(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    bert = small_settings("bert", tiny_pools, tiny_bert)
    both = dry([bert, bert.model_copy(update={"seed": 2})], tmp_path)
    names = [str(stage.name) for stage in both]
    assert names.count("domain-pretraining") == 1
    assert names.count("teacher") == 2
    assert "0 of 2 cached" in shown(both)
    assert not list(tmp_path.iterdir())  # nothing is written


@pytest.mark.parametrize("method", method_names())
def test_every_method_has_a_dry_run(method: str, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    stages = dry([small_settings(method, tiny_pools, tiny_bert)], tmp_path)
    assert str(stages[-1].name).startswith("test/scores")


@pytest.mark.parametrize("method", ["tsst", "icast", "icast-pg", "ensemble"])
def test_no_stage_takes_the_name_of_another(method: str, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    parts = {"similarity": {}, "intent": {"training": None}, "cross": True}
    known = {name: value for name, value in parts.items() if has_setting(load_method(method), name)}
    stages = dry([small_settings(method, tiny_pools, tiny_bert, **known, **{"regime.num_rounds": 3})], tmp_path)
    names = [str(stage.name) for stage in stages]
    assert len(names) == len(set(names))  # stages.json has one record a name
