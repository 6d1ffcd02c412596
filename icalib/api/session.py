"""Computing on a cluster, on this machine or in this process, with progress shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icalib.api.options import Place
    from icalib.core.run_folder import RunFolder
    from icalib.data.negatives import ParallelMap
    from icalib.pipeline.config import RunConfig
    from icalib.pipeline.run import RunContext
    from icalib.reports.progress import TerminalProgress
    from icalib.stages.executor import Executor


@dataclass(frozen=True)
class Session:
    """An executor that has been started, and the display of its progress; `fresh` runs are computed from scratch."""

    place: Place
    progress: TerminalProgress
    fresh: bool

    def message(self, text: str) -> None:
        """Show one line."""
        from icalib.core.events import Message

        self.progress.show(Message(text))

    @property
    def parallel_map(self) -> ParallelMap:
        """Runs independent tasks and returns their results in order."""
        if self.place.executor == "local":
            return map
        from icalib.distributed.session import parallel_map

        return parallel_map

    @cached_property
    def context(self) -> RunContext:
        """The run context; a SettingError if more workers are asked for than fit."""
        from icalib.core.events import broadcast
        from icalib.pipeline.run import RunContext
        from icalib.reports.tensorboard import update_tensorboard
        from icalib.reports.trackers import trackers

        return RunContext(
            runs=self.place.runs.resolve(),
            executor=self._executor(),
            emit=broadcast(self.progress.show, update_tensorboard, *trackers(self.place.track, self.progress.show)),
            command=command_line(),
            recomputed=set() if self.fresh else None,
        )

    def _executor(self) -> Executor:
        if self.place.executor == "local":
            from icalib.stages.executor import LocalExecutor

            return LocalExecutor()
        from icalib.distributed.executor import RayExecutor
        from icalib.distributed.session import available

        return RayExecutor(available(self.place.workers))

    def run(self, config: RunConfig) -> RunFolder:
        """Run a method; a finished run is returned as it is."""
        from icalib.pipeline.run import run

        return run(config, self.context)

    def run_all(self, chosen: Sequence[RunConfig]) -> list[RunFolder]:
        """Run one after the other."""
        from icalib.reports.comparison import format_fraction

        finished: list[RunFolder] = []
        for index, config in enumerate(chosen, 1):
            which = f"run {index} of {len(chosen)}: " if len(chosen) > 1 else ""
            labelled = f"{format_fraction(config.labelled)} labelled ({config.num_labelled():,} pools)"
            self.message(f"{which}{config.method}, seed {config.seed}, {labelled}")
            if unannotated := config.num_unannotated():
                self.message(
                    f"{unannotated:,} of the labels are the source's, e.g. logged replies: no one annotated them"
                )
            finished.append(self.run(config))
        return finished

    def evaluate(self, folder: RunFolder, data: Path, limit: int | None) -> dict[str, Any]:
        """Evaluate a run on another pool set."""
        from icalib.pipeline.finished import FinishedRun, evaluate

        self.message(f"{folder.name} on {data.resolve().name}")
        return evaluate(FinishedRun.open(folder.path), data, limit, self.context)

    @contextmanager
    def started(self) -> Generator[None, None, None]:
        """Start the executor for as long as the block lasts; in local mode no Ray is started."""
        if self.place.executor == "local":
            yield
            return
        from icalib.distributed.session import has_joined, start, stop

        is_users_own = has_joined()
        with nullcontext() if is_users_own else self.progress.stage("Ray"):
            start(self.place.address, note=self.message)
        try:
            yield
        finally:
            if not is_users_own:
                stop()


@contextmanager
def session(place: Place, *, fresh: bool = False) -> Generator[Session, None, None]:
    """Show progress and start an executor for as long as the block lasts."""
    from icalib.reports.progress import TerminalProgress

    with TerminalProgress() as progress:
        active = Session(place, progress, fresh)
        with active.started():
            yield active


def command_line() -> str:
    """The command that provenance.json and reports name."""
    program = Path(sys.argv[0]).name
    return shlex.join(["icalib" if program == "__main__.py" else program, *sys.argv[1:]])
