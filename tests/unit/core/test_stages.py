from __future__ import annotations

from pathlib import Path

import pytest

from icalib.core.files import read_json
from icalib.core.stages import Stage, StageCache


class Build:
    """Writes a file and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "out.txt").write_text(str(self.calls))


def test_a_stage_with_the_same_inputs_is_computed_once(tmp_path: Path) -> None:
    build = Build()
    first = StageCache(tmp_path).run("teacher", {"seed": 1}, build)
    again = StageCache(tmp_path).run("teacher", {"seed": 1}, build)
    assert (first.reused, again.reused, build.calls) == (False, True, 1)
    assert (again.path, again.digest, again.seconds) == (first.path, first.digest, first.seconds)


@pytest.mark.parametrize(("name", "inputs"), [("teacher", {"seed": 2}), ("student", {"seed": 1})])
def test_other_inputs_or_another_kind_are_another_stage(tmp_path: Path, name: str, inputs: dict[str, int]) -> None:
    build = Build()
    cache = StageCache(tmp_path)
    assert cache.run("teacher", {"seed": 1}, build).path != cache.run(name, inputs, build).path
    assert build.calls == 2


def test_a_kind_lets_runs_call_the_same_stage_by_other_names(tmp_path: Path) -> None:
    build = Build()
    first = StageCache(tmp_path).run("round-1/student", {"seed": 1}, build, kind="student")
    second = StageCache(tmp_path).run("round-2/student", {"seed": 1}, build, kind="student")
    assert first.path == second.path
    assert second.reused


def test_an_unfinished_stage_keeps_its_folder_and_is_built_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "shard-1").write_text("kept")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        StageCache(tmp_path).run("scores", {}, fail)
    found: list[str] = []
    stage = StageCache(tmp_path).run("scores", {}, lambda folder: found.extend(path.name for path in folder.iterdir()))
    assert found == ["shard-1"]
    assert not stage.reused


def test_fresh_computes_each_stage_anew_once(tmp_path: Path) -> None:
    build = Build()
    StageCache(tmp_path).run("teacher", {}, build)
    cache = StageCache(tmp_path, fresh=True)
    assert [cache.run("teacher", {}, build).reused for _ in range(2)] == [False, True]
    assert build.calls == 2


def test_listeners_and_records_hear_of_every_stage(tmp_path: Path) -> None:
    started: list[tuple[str, bool]] = []
    finished: list[Stage] = []
    cache = StageCache(
        tmp_path, on_start=lambda name, reused: started.append((name, reused)), on_finish=finished.append
    )
    cache.run("round-1/scores", {"x": 1}, Build())
    cache.run("round-1/scores", {"x": 1}, Build())
    assert started == [("round-1/scores", False), ("round-1/scores", True)]
    assert cache.finished == finished
    assert finished[0].record()["name"] == "round-1/scores"
    assert read_json(finished[0].path / "stage.json")["inputs"] == {"x": 1}
