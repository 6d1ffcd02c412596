from __future__ import annotations

from pathlib import Path

import pytest
from helpers.stores import Machines

from icalib.core.errors import Abandoned, StorageError
from icalib.core.files import read_json, write_json
from icalib.core.stage_cache import RESUME, Stage, StageCache, remove_stage, share


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


def test_an_abandoned_stage_leaves_nothing(tmp_path: Path) -> None:
    def give_up(folder: Path) -> None:
        (folder / "optimizer.bin").write_text("large")
        raise Abandoned("seen enough")

    with pytest.raises(Abandoned):
        StageCache(tmp_path).run("teacher", {}, give_up)
    assert not list(tmp_path.glob("teacher*"))


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


def test_another_machine_reuses_a_finished_stage(machines: Machines) -> None:
    build = Build()
    first = StageCache(machines.on("a", "runs/.cache")).run("teacher", {"seed": 1}, build)
    assert first.record()["path"] == f"{machines.uri}/runs/.cache/{first.path.name}"
    again = StageCache(machines.on("b", "runs/.cache")).run("teacher", {"seed": 1}, build)
    assert (first.reused, again.reused, build.calls) == (False, True, 1)
    assert first.path != again.path
    assert (again.path / "out.txt").read_text() == "1"


def test_another_machine_goes_on_with_an_unfinished_stage(machines: Machines) -> None:
    def stop(folder: Path) -> None:
        for name in ("shard-1", f"{RESUME}/state"):
            write_json(folder / name, 1)
            share(folder, name)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        StageCache(machines.on("a", "cache")).run("scores", {}, stop)
    found: list[Path] = []
    cache = StageCache(machines.on("b", "cache"))
    cache.run("scores", {}, lambda folder: found.extend(folder.rglob("*")))
    assert [path.name for path in found] == ["shard-1"]  # what resumes a training is its workers' own business


def test_fresh_forgets_a_stage_on_all_machines(machines: Machines) -> None:
    build = Build()
    StageCache(machines.on("a", "cache")).run("teacher", {}, build)
    StageCache(machines.on("b", "cache"), fresh=True).run("teacher", {}, build)
    stage = StageCache(machines.on("c", "cache")).run("teacher", {}, build)
    assert (stage.path / "out.txt").read_text() == "2"


def test_a_stage_that_another_machine_finishes_first_is_left_alone(machines: Machines) -> None:
    def slow(folder: Path) -> None:
        (folder / "out.txt").write_text("slow")
        StageCache(machines.on("b", "cache")).run("teacher", {}, Build())
        machines.on("a", "cache")

    with pytest.raises(StorageError, match="another machine has finished"):
        StageCache(machines.on("a", "cache")).run("teacher", {}, slow)
    stage = StageCache(machines.on("a", "cache")).run("teacher", {}, slow)
    assert stage.reused
    assert (stage.path / "out.txt").read_text() == "1"


def test_a_stage_that_the_store_does_not_know_as_finished_is_unfinished(machines: Machines) -> None:
    folder = machines.on("a", "cache")
    machines.fails(lambda kind, path: kind == "write" and "stage.json" in path)
    with pytest.raises(StorageError):
        StageCache(folder).run("teacher", {}, Build())
    assert not list(folder.rglob("stage.json"))


def test_a_removed_stage_stays_in_the_store(machines: Machines) -> None:
    stage = StageCache(machines.on("a", "cache")).run("teacher", {}, Build())
    assert remove_stage(stage.path)
    assert not stage.path.exists()
    assert StageCache(machines.on("a", "cache")).run("teacher", {}, Build()).reused
