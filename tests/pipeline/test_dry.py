"""`--dry` against the runs that it lists: the same stages, cached where they are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from helpers.runs import run_context, small_settings
from rich.console import Console

from icalib.methods.catalogue import method_names
from icalib.pipeline.dry import DryStage, dry
from icalib.pipeline.run import run
from icalib.reports.dry_terminal import print_stages


def shown(stages: list[DryStage]) -> str:
    stream = io.StringIO()
    print_stages(stages, Console(file=stream, width=160))
    return " ".join(stream.getvalue().split())


def test_stages_and_digests_are_those_of_the_run(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    tsst = small_settings("tsst", tiny_pools, tiny_bert)
    before = dry([tsst], tmp_path)
    assert not list(tmp_path.iterdir())  # nothing is written
    assert not any(stage.is_cached for stage in before)

    finished = run(tsst, run_context(tmp_path))
    taken = {stage["name"]: stage["digest"] for stage in finished.stages}
    assert [str(stage.name) for stage in before] == list(taken)
    same = [str(stage.name) for stage in before if stage.digest == taken[str(stage.name)]]
    assert same[:4] == ["tokens", "post-training", "teacher", "round-1/scores"]
    assert not {"round-1/student", "validation/scores", "test/scores"} & set(same)  # the pseudo labels aren't known

    after = dry([tsst], tmp_path)
    assert all(stage.is_cached for stage in after)
    assert {stage.digest for stage in after} == set(taken.values())
    assert not any(stage.is_cached for stage in dry([tsst], tmp_path, fresh=True))

    other_labels = {str(stage.name): stage for stage in dry([tsst.model_copy(update={"labelled": 0.6})], tmp_path)}
    assert other_labels["post-training"].is_cached
    assert "teacher trains on the labelled pools to compute" in shown(list(other_labels.values()))


def test_shared_stages_are_listed_once(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    bert = small_settings("bert", tiny_pools, tiny_bert)
    both = dry([bert, bert.model_copy(update={"seed": 2})], tmp_path)
    names = [str(stage.name) for stage in both]
    assert names.count("post-training") == 1
    assert names.count("teacher") == 2
    assert "0 of 2 cached" in shown(both)


@pytest.mark.parametrize("method", method_names())
def test_every_method_has_a_dry_run(method: str, tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    stages = dry([small_settings(method, tiny_pools, tiny_bert)], tmp_path)
    assert str(stages[-1].name).startswith("test/scores")
