"""The terminal view of jobs on a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console
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
        seconds = (job.ended or time.time()) - job.started
        state = Text(job.state, style=_STYLES[job.state])
        table.add_row(Text(job.id), state, since, format_seconds(seconds), Text(job.command))
    (console or people_console()).print(table)
