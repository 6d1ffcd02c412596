from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from helpers.damage import DAMAGES
from helpers.stores import Machines

from icalib.core.errors import Abandoned, StorageError
from icalib.core.events import Event, Message
from icalib.core.files import write_json
from icalib.core.job import Artifact, Job
from icalib.core.stage_cache import RESUME, StageCache, StageName, remove_stage, share


class Seeded(Job):
    """A job with one setting."""

    seed: int = 0


class Several(Job):
    """A job that reads several artifacts."""

    several: tuple[Artifact, ...]
    of: dict[str, tuple[Artifact, ...]]


class Build:
    """Writes a file and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "out.txt").write_text(str(self.calls))


@pytest.mark.parametrize(
    ("name", "seed", "reused"),
    [
        (StageName("teacher"), 1, True),
        (StageName("teacher", "round-2"), 1, True),  # runs may call the same stage by other names
        (StageName("teacher"), 2, False),
        (StageName("student"), 1, False),
    ],
)
def test_a_stage_with_the_same_label_and_inputs_is_computed_once(
    tmp_path: Path, name: StageName, seed: int, reused: bool
) -> None:
    build = Build()
    first = StageCache(tmp_path).run(StageName("teacher"), Seeded(seed=1), build)
    second = StageCache(tmp_path).run(name, Seeded(seed=seed), build)
    assert (first.reused, second.reused, build.calls) == (False, reused, 1 if reused else 2)
    assert ((second.path, second.digest, second.seconds) == (first.path, first.digest, first.seconds)) == reused


def test_an_unfinished_stage_keeps_its_folder_and_is_built_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "shard-1").write_text("kept")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        StageCache(tmp_path).run(StageName("scores"), Seeded(), fail)
    found: list[str] = []
    look = lambda folder: found.extend(path.name for path in folder.iterdir())  # noqa: E731
    stage = StageCache(tmp_path).run(StageName("scores"), Seeded(), look)
    assert found == ["shard-1"]
    assert not stage.reused


def test_an_abandoned_stage_leaves_nothing(tmp_path: Path) -> None:
    def give_up(folder: Path) -> None:
        (folder / "optimizer.bin").write_text("large")
        raise Abandoned("seen enough")

    with pytest.raises(Abandoned):
        StageCache(tmp_path).run(StageName("teacher"), Seeded(), give_up)
    assert not list(tmp_path.glob("teacher*"))


def test_fresh_runs_compute_each_stage_anew_once(tmp_path: Path) -> None:
    build, recomputed = Build(), set[str]()
    StageCache(tmp_path).run(StageName("teacher"), Seeded(), build)
    caches = [StageCache(tmp_path, recomputed=recomputed) for _ in range(2)]
    assert [cache.run(StageName("teacher"), Seeded(), build).reused for cache in caches] == [False, True]
    assert build.calls == 2


def test_a_stage_in_use_is_not_computed_anew(tmp_path: Path) -> None:
    build, seen = Build(), list[Event]()
    user = StageCache(tmp_path)
    stage = user.run(StageName("teacher"), Seeded(), build)
    fresh = StageCache(tmp_path, emit=seen.append, recomputed=set())
    assert fresh.run(StageName("teacher"), Seeded(), build).reused
    assert (stage.path / "out.txt").read_text() == "1"
    assert any(isinstance(event, Message) and "uses this stage" in event.text for event in seen)


def test_another_machine_goes_on_with_an_unfinished_stage(machines: Machines) -> None:
    def stop(folder: Path) -> None:
        for name in ("shard-1", f"{RESUME}/state"):
            write_json(folder / name, 1)
            share(folder, name)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        StageCache(machines.on("a", "cache")).run(StageName("scores"), Seeded(), stop)
    found: list[Path] = []
    cache = StageCache(machines.on("b", "cache"))
    cache.run(StageName("scores"), Seeded(), lambda folder: found.extend(folder.rglob("*")))
    assert [path.name for path in found] == ["shard-1"]  # what resumes a training is its workers' own business


def test_a_stage_that_another_machine_finishes_first_is_left_alone(machines: Machines) -> None:
    def slow(folder: Path) -> None:
        (folder / "out.txt").write_text("slow")
        StageCache(machines.on("b", "cache")).run(StageName("teacher"), Seeded(), Build())
        machines.on("a", "cache")

    with pytest.raises(StorageError, match="another machine has finished"):
        StageCache(machines.on("a", "cache")).run(StageName("teacher"), Seeded(), slow)
    stage = StageCache(machines.on("a", "cache")).run(StageName("teacher"), Seeded(), slow)
    assert stage.reused
    assert (stage.path / "out.txt").read_text() == "1"


def test_a_stage_that_the_store_does_not_know_as_finished_is_unfinished(machines: Machines) -> None:
    folder = machines.on("a", "cache")
    machines.fails(lambda kind, path: kind == "write" and "stage.json" in path)
    with pytest.raises(StorageError):
        StageCache(folder).run(StageName("teacher"), Seeded(), Build())
    assert not list(folder.rglob("stage.json"))


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message)]


def build_shards(folder: Path) -> None:
    """Two shards of 1 KiB, a checkpoint and a JSON file, always the same."""
    (folder / "checkpoint").mkdir(exist_ok=True)
    for name in ("scores-000000", "scores-000001", "checkpoint/model"):
        (folder / name).write_bytes(name.encode() * 100)
    write_json(folder / "curve.json", [{"step": 1}])


def test_a_stage_that_another_machine_computed_again_is_that_ones(machines: Machines) -> None:
    name, job = StageName("teacher"), Seeded(seed=1)

    def stage(machine: str, build: Build, recomputed: set[str] | None = None) -> str:
        root = machines.on(machine, "cache")
        return (StageCache(root, recomputed=recomputed).run(name, job, build).path / "out.txt").read_text()

    build = Build()
    assert stage("a", build) == "1"
    done = next(machines.on("a", "cache").glob("*/stage.json"))
    os.utime(done, ns=(done.stat().st_mtime_ns - 10**9,) * 2)  # a second ago: stores count whole seconds
    assert stage("b", build, set()) == "2"
    assert stage("a", build) == "2"
    assert build.calls == 2


def test_shards_that_were_added_are_removed(tmp_path: Path) -> None:
    stage = StageCache(tmp_path).run(StageName("scores"), Seeded(seed=1), build_shards)
    (stage.path / "scores-000002").write_text("of another run")
    (stage.path / ".nfs0001").write_text("of the file system")
    assert StageCache(tmp_path).run(StageName("scores"), Seeded(seed=1), build_shards).reused
    assert not (stage.path / "scores-000002").exists()
    assert (stage.path / ".nfs0001").exists()


@pytest.mark.parametrize("name", ["scores-000001", "stage.json"])
def test_a_damaged_mirror_is_downloaded_again(machines: Machines, name: str) -> None:
    StageCache(machines.on("a", "cache")).run(StageName("scores"), Seeded(seed=1), build_shards)
    stage = StageCache(machines.on("b", "cache")).run(StageName("scores"), Seeded(seed=1), build_shards)
    before = (stage.path / name).read_bytes()
    DAMAGES["flip_a_bit"](stage.path / name)
    if name == "stage.json":
        DAMAGES["truncate"](stage.path / name)
    assert StageCache(machines.on("b", "cache")).run(StageName("scores"), Seeded(seed=1), build_shards).reused
    assert (stage.path / name).read_bytes() == before


def test_a_stage_that_is_damaged_in_the_store_is_computed_again_for_all_machines(machines: Machines) -> None:
    stage = StageCache(machines.on("a", "cache")).run(StageName("scores"), Seeded(seed=1), build_shards)
    DAMAGES["flip_a_bit"](machines.there(f"cache/{stage.path.name}/scores-000001"))
    events: list[Event] = []
    again = StageCache(machines.on("b", "cache"), emit=events.append)
    assert not again.run(StageName("scores"), Seeded(seed=1), build_shards).reused
    assert len(texts(events)) == 1
    assert StageCache(machines.on("c", "cache")).run(StageName("scores"), Seeded(seed=1), build_shards).reused


def compute(root: Path, calls: Path) -> None:
    def build(folder: Path) -> None:
        with calls.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)

    StageCache(root).run(StageName("teacher"), Job(), build)


def test_of_two_processes_one_computes_and_the_other_reuses_it(tmp_path: Path) -> None:
    root, calls = tmp_path / "cache", tmp_path / "calls"
    processes = [multiprocessing.get_context("fork").Process(target=compute, args=(root, calls)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(calls.read_text().splitlines()) == 1


def test_a_stage_in_use_is_not_removed(tmp_path: Path) -> None:
    cache = StageCache(tmp_path)
    stage = cache.run(StageName("student"), Job(), lambda folder: None)
    assert not remove_stage(stage.path)
    del cache
    assert remove_stage(stage.path)
    assert not stage.path.exists()


def test_a_job_reads_the_artifacts_in_its_tuples(tmp_path: Path) -> None:
    """As a machine without them would fetch no encoder of an intent job."""
    artifact = Artifact(path=tmp_path, digest="d")
    assert list(Several(several=(artifact, artifact), of={"name": (artifact,)}).artifacts()) == [artifact] * 3
