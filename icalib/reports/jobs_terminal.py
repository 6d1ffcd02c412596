"""The terminal view of jobs on a cluster: a table of them, and one that is followed, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from icalib.core.cluster_job import ClusterJob, JobState
from icalib.reports.comparison import format_seconds
from icalib.reports.console import people_console, titled_table

_STYLES: Mapping[JobState, str] = {
    "pending": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "dim",
}


def print_jobs(jobs: Sequence[ClusterJob], address: str, console: Console | None = None) -> None:
    """Print one line per job: its state, since when, and how long it has taken."""
    table = titled_table(f"Jobs at {address}", expand=True)
    for name in ("id", "state", "since"):
        table.add_column(name, no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    for job in jobs:
        since = datetime.fromtimestamp(job.started).strftime("%Y-%m-%d %H:%M")
        state = Text(job.state, style=_STYLES[job.state])
        table.add_row(job.id, state, since, format_seconds(_duration(job)), Text(job.command))
    (console or people_console()).print(table)


def job_line(job: ClusterJob) -> Text:
    """A job and its state, in one line."""
    parts = [f"{job.id} ", (job.state, _STYLES[job.state]), f"  {format_seconds(_duration(job))}"]
    if job.state == "pending":
        parts.append(("  waiting for room, or its environment is being made", "dim"))
    elif job.state == "failed":
        reason = _first_line(job.message) if job.exit_code is None else f"exit code {job.exit_code}"
        parts.append(f"  {reason}")
    return Text.assemble(*parts)


@final
class JobProgress:
    """Shows the log of a job as it arrives, and the state of the job; use it as a context manager.

    The log goes to standard output. On a terminal one line under it is brought up to date, and goes at the end;
    elsewhere each change of state is one line.

    Args:
        hint: what to say beside a running job.
        console: where the state is shown.
    """

    def __init__(self, hint: str, console: Console | None = None) -> None:
        self._hint, self._console = hint, console or people_console()
        self._job: ClusterJob | None = None
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, text: str) -> None:
        """Show a line of the log."""
        if self._console.is_terminal and sys.stdout.isatty():
            self._console.print(Text(text), soft_wrap=True)  # above the status
        else:
            print(text, flush=True)

    def state(self, job: ClusterJob) -> None:
        """Show the current state of the job."""
        changed = self._job is None or self._job.state != job.state
        self._job = job
        if changed and (job.is_over or not self._console.is_terminal):
            self._console.print(job_line(job), soft_wrap=True)

    def _render(self) -> Text:
        if self._job is None or self._job.is_over:
            return Text()
        return Text.assemble(job_line(self._job), (f"   {self._hint}", "dim"), no_wrap=True, overflow="ellipsis")


def _duration(job: ClusterJob) -> float:
    return (job.ended or time.time()) - job.started


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
