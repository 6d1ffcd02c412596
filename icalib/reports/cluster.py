"""Machines in the terminal: the checks of `icalib doctor` and the jobs of `icalib jobs`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from icalib.core.check import Check, Status
from icalib.core.job_file import ClusterJob, JobState
from icalib.reports.comparison import format_seconds
from icalib.reports.console import people_console, text_table

_MARKS: Mapping[Status, tuple[str, str]] = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}
_STYLES: Mapping[JobState, str] = {
    "pending": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "dim",
}


def print_check(check: Check, console: Console) -> None:
    """Print the result of a check of `icalib doctor`, and what to do about it."""
    row = Table.grid(Column(width=4), Column(width=16), Column(overflow="fold"), padding=(0, 2, 0, 0))
    row.add_row(Text(*_MARKS[check.status]), Text(check.name), Text(check.found))
    if check.cure:
        row.add_row("", "", Text(f"→ {check.cure}", style="bold" if check.status == "fail" else ""))
    console.print(row)


def print_jobs(jobs: Sequence[ClusterJob], address: str, console: Console | None = None) -> None:
    """Print one line per job: its state, since when, and how long it has taken."""
    command = Column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    rows = [
        (
            job.id,
            Text(job.state, _STYLES[job.state]),
            datetime.fromtimestamp(job.started).strftime("%Y-%m-%d %H:%M"),
            format_seconds((job.ended or time.time()) - job.started),
            job.command,
        )
        for job in jobs
    ]
    table = text_table(("id", "state", "since", "time", command), rows, title=f"Jobs at {address}", num_texts=3)
    table.expand = True
    (console or people_console()).print(table)
