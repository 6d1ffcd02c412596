"""Working on a cluster or this machine, with progress shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icalib.core.run_folder import RunFolder
    from icalib.pipeline.run import RunContext, RunSettings
    from icalib.reports.terminal import Progress


@contextmanager
def session(address: str | None) -> Generator[Progress, None, None]:
    """Ray, here or at an address, for as long as the block lasts; yields what shows progress."""
    from icalib.distributed.session import start, stop
    from icalib.reports.terminal import Progress

    with Progress() as progress:
        start(address)
        try:
            yield progress
        finally:
            stop()


def run_context(progress: Progress, runs: Path, workers: int | None) -> RunContext:
    """Where the runs of this command happen."""
    from icalib.core.events import Event, Message, RunUpdated, StageFinished, StageStarted
    from icalib.core.events import Progress as Reached
    from icalib.core.run_folder import RunFolder
    from icalib.distributed.executor import RayExecutor
    from icalib.distributed.session import available
    from icalib.pipeline.run import RunContext
    from icalib.reports.tensorboard import write_tensorboard

    def emit(event: Event) -> None:
        match event:
            case StageStarted(stage, reused) if not reused:
                progress.stage(stage, "")
            case Reached(stage, done, total, note):
                progress.advance(stage, done, total, note)
            case StageFinished():
                progress.finished(event.stage, event.seconds, event.reused)
            case Message(text):
                progress.message(text)
            case RunUpdated(path):
                write_tensorboard(RunFolder(path))
            case _:
                pass

    return RunContext(
        runs=runs.resolve(),
        executor=RayExecutor(available(workers)),
        emit=emit,
        command=shlex.join(["icalib", *sys.argv[1:]]),
    )


def run_all(
    progress: Progress, chosen: list[RunSettings], runs: Path, workers: int | None, *, fresh: bool
) -> list[RunFolder]:
    """Run one after the other; what is finished already is returned as it is."""
    from icalib.pipeline.run import run

    where = run_context(progress, runs, workers)
    finished: list[RunFolder] = []
    for settings in chosen:
        progress.message(f"{settings.method}, seed {settings.seed}")
        finished.append(run(settings, where, fresh=fresh))
    return finished


def evaluate_all(
    progress: Progress,
    finished: list[RunFolder],
    others: list[Path],
    limit: int | None,
    runs: Path,
    workers: int | None,
) -> list[dict[str, Any]]:
    """The metrics of all runs on other pool sets."""
    from icalib.pipeline.inference import FinishedRun, evaluate

    results: list[dict[str, Any]] = []
    for data in others:
        for folder in finished:
            progress.message(f"{folder.name} on {data.resolve().name}")
            results.append(evaluate(FinishedRun.open(folder.path), data, limit, run_context(progress, runs, workers)))
    return results
