"""The progress of runs in a terminal, on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from icalib.core.events import EpochFinished, Event, Message, Progress, RunUpdated, StageFinished, StageStarted
from icalib.core.text import printable
from icalib.reports.comparison import format_seconds
from icalib.reports.terminal import people_console

_LINE_INTERVAL_S = 5.0


@final
class TerminalProgress:
    """Shows which stages are running; use it as a context manager.

    On a terminal every running stage has a bar. Elsewhere (logs, jobs on a cluster) every event is one plain line, and
    the progress of a stage is at most one line in five seconds.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or people_console()
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.fields[stage]}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.description}"),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            self._bars.stop()

    def show(self, event: Event) -> None:
        """Show an event of a run."""
        match event:
            case StageStarted(stage, reused):
                if not reused:
                    self.stage(stage, "")
            case Progress(stage, done, total, note):
                self.advance(stage, done, total, note)
            case StageFinished():
                self.finished(event.stage, event.seconds, event.reused)
            case Message(text):
                self.message(text)
            case EpochFinished() | RunUpdated():
                pass  # shown by curves and tables

    def stage(self, name: str, detail: str) -> None:
        """Show that a stage has started; `detail` says what it works on."""
        if self._console.is_terminal:
            self._bar(name, detail)
        else:
            self._line(f"{name}: {detail}" if detail else f"{name} …")
            self._last_line[name] = time.monotonic()

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """Show that `done` of `total` units (None where unknown) of a running stage are finished."""
        if self._console.is_terminal:
            bar = self._bar(name)
            self._bars.update(bar, completed=done, total=total)
            if note:
                self._bars.update(bar, description=escape(note))
        elif time.monotonic() - self._last_line.get(name, 0.0) >= _LINE_INTERVAL_S:
            units = f"{done}/{total}" if total is not None else f"{done}"
            self._line(f"{name}: {units} {note}".rstrip())
            self._last_line[name] = time.monotonic()

    def finished(self, name: str, seconds: float, reused: bool) -> None:
        """Show that a stage has finished, or was read from the cache."""
        outcome = "reused" if reused else format_seconds(seconds)
        if not self._console.is_terminal:
            self._line(f"{name}: {outcome if reused else f'done in {outcome}'}")
            return
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        self._console.print(Text.assemble(("✓ ", "green"), name, (f"  {outcome}", "dim")))
        if not self._tasks:
            self._bars.stop()

    def message(self, text: str) -> None:
        """Show one line."""
        self._line(text)

    def _bar(self, name: str, detail: str = "") -> TaskID:
        if name not in self._tasks:
            self._bars.start()
            self._tasks[name] = self._bars.add_task(escape(detail), total=None, stage=escape(name))
        return self._tasks[name]

    def _line(self, text: str) -> None:
        self._console.print(Text(printable(text)), soft_wrap=True)
