"""The progress of runs on standard error; events.jsonl in a run's folder has it for programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Self, final

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from icalib.core.events import Event, Message, Progress, StageFinished, StageStarted
from icalib.core.process import QUIET
from icalib.core.text import printable
from icalib.reports.comparison import format_seconds
from icalib.reports.console import people_console

_NARROW = 100
"""Below this width a bar is short, so that its numbers are not cut."""
_INTERVAL_S = 5.0
"""The progress of a stage is at most one line in this time."""
_SILENCE_S = 10.0
"""After this time without a line, one says what is still running."""


@final
class TerminalProgress:
    """Shows which stages are running; use it as a context manager.

    On a terminal every running stage has a bar. Elsewhere (logs, jobs on a cluster) every event is one plain line, and
    a line comes at least every ten seconds while a stage is running. With --quiet, nothing is shown.
    """

    def __init__(self, console: Console | None = None) -> None:
        quiet = Console(stderr=True, quiet=True) if QUIET.get() else None
        self._console = console or quiet or people_console()
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.fields[stage]}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=10 if self._console.width < _NARROW else 28),
            MofNCompleteColumn(table_column=Column(no_wrap=True, justify="right")),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("[dim]{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            console=self._console,
            transient=True,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, tuple[float, str]] = {}
        self._running: dict[str, float] = {}  # since when
        self._unannounced: set[str] = set()  # those whose end nothing announces, either
        self._said = 0.0
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if not self._console.is_terminal:
            threading.Thread(target=self._break_silence, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._tasks:
            self._bars.stop()

    @contextmanager
    def stage(self, name: str) -> Generator[None, None, None]:
        """Show the block as a stage."""
        started = time.monotonic()
        self._started(name)
        yield
        self._finished(name, format_seconds(time.monotonic() - started))

    def show(self, event: Event) -> None:
        """Show an event; curves and tables show epochs and runs."""
        match event:
            case StageStarted(stage, reused=False):
                self._started(stage)
            case Progress(stage, done, total, note):
                self._advanced(stage, done, total, note)
            case StageFinished():
                self._finished(event.stage, "reused" if event.reused else format_seconds(event.seconds))
            case Message(text):
                self._line(text)
            case _:
                pass

    def _started(self, stage: str) -> None:
        if self._console.is_terminal:
            self._bar(stage)
        else:
            self._line(f"{stage} …")
            self._last_line[stage] = (time.monotonic(), "")
            self._running[stage] = time.monotonic()

    def _advanced(self, stage: str, done: float, total: float | None, note: str) -> None:
        if self._console.is_terminal:
            self._bars.update(self._bar(stage), completed=done, total=total)
            if note:
                self._bars.update(self._bar(stage), description=escape(note))
            return
        if stage not in self._running:  # of a stage that nothing announced
            self._running[stage] = time.monotonic()
            self._unannounced.add(stage)
        if done == total and stage in self._unannounced:
            self._running.pop(stage)
            self._unannounced.remove(stage)
        units = f"{done}/{total}" if total is not None else f"{done}"
        line, now = f"{stage}: {units} {note}".rstrip(), time.monotonic()
        shown_at, shown = self._last_line.get(stage, (float("-inf"), ""))
        if line != shown and now - shown_at >= _INTERVAL_S:
            self._line(line)
            self._last_line[stage] = (now, line)

    def _finished(self, stage: str, outcome: str) -> None:
        if not self._console.is_terminal:
            self._running.pop(stage, None)
            self._line(f"{stage}: {outcome if outcome == 'reused' else f'done in {outcome}'}")
            return
        if stage in self._tasks:
            self._bars.remove_task(self._tasks.pop(stage))
        self._console.print(Text.assemble(("✓ ", "green"), stage, (f"  {outcome}", "dim")))
        if not self._tasks:
            self._bars.stop()

    def _bar(self, stage: str) -> TaskID:
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task("", total=None, stage=escape(stage))
        return self._tasks[stage]

    def _break_silence(self) -> None:
        while not self._over.wait(_SILENCE_S / 10):
            now = time.monotonic()
            if now - self._said >= _SILENCE_S and (running := [*self._running.items()]):
                self._line(", ".join(f"{stage}: {format_seconds(now - since)} so far" for stage, since in running))

    def _line(self, text: str) -> None:
        self._console.print(Text(printable(text)), soft_wrap=True)
        self._said = time.monotonic()
