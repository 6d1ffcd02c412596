from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

from icalib.core.events import Event, Message
from icalib.core.job import Job
from icalib.core.stage_cache import StageCache, StageName, remove_stage

TEACHER = StageName("teacher")


def compute(root: Path, calls: Path, seconds: float) -> None:
    def build(folder: Path) -> None:
        with calls.open("a") as file:
            file.write(f"{os.getpid()}\n")
        (folder / "begun").touch()
        time.sleep(seconds)

    StageCache(root).run(TEACHER, Job(), build)


def start(root: Path, calls: Path, seconds: float) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=compute, args=(root, calls, seconds))
    process.start()
    return process


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_two_processes_one_computes_and_the_other_reuses_it(tmp_path: Path) -> None:
    root, calls = tmp_path / "cache", tmp_path / "calls"
    processes = [start(root, calls, 0.3) for _ in range(2)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(calls.read_text().splitlines()) == 1


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    root, calls = tmp_path / "cache", tmp_path / "calls"
    process = start(root, calls, 60)
    wait_for(calls)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    waits: list[Event] = []
    stage = StageCache(root, emit=waits.append).run(TEACHER, Job(), lambda folder: None)
    assert not [event for event in waits if isinstance(event, Message)]
    assert not stage.reused


def test_a_stage_in_use_is_not_removed(tmp_path: Path) -> None:
    cache = StageCache(tmp_path)
    stage = cache.run(StageName("student"), Job(), lambda folder: None)
    assert not remove_stage(stage.path)
    del cache
    assert remove_stage(stage.path)
    assert not stage.path.exists()
