"""The progress of runs in a terminal, on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from icalib.core.display import display
from icalib.core.events import EpochFinished, Event, Message, Progress, RunUpdated, StageFinished, StageStarted
from icalib.core.text import printable
from icalib.reports.comparison import format_seconds
from icalib.reports.console import people_console
from icalib.reports.stage_purpose import purpose

_NARROW = 100
"""Below this width a bar is short, so that its numbers are not cut."""
_LINE_INTERVAL_S = 5.0
_NEVER = (float("-inf"), "")


def progress_console() -> Console:
    """The console of progress: standard error, or nowhere with --quiet."""
    return Console(stderr=True, quiet=True) if display().quiet else people_console()


@final
class _Count(ProgressColumn):
    """Units that are done, of how many if that is known; nothing before the first."""

    @override
    def render(self, task: Task) -> Text:
        if task.total is not None:
            return Text(f"{task.completed:,.0f}/{task.total:,.0f}")
        return Text(f"{task.completed:,.0f}" if task.completed else "")


@final
class _Times(ProgressColumn):
    """The time that a stage has taken, and about how much is left where the total is known."""

    @override
    def render(self, task: Task) -> Text:
        left = task.time_remaining if task.total is not None else None
        return Text(_clock(task.elapsed or 0.0) + (f", {_clock(left)} left" if left is not None else ""))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@final
class TerminalProgress:
    """Shows which stages are running; use it as a context manager.

    On a terminal every running stage has a bar. Elsewhere (logs, jobs on a cluster) every event is one plain line, and
    the progress of a stage is at most one line in five seconds, and none while it stays the same.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or progress_console()
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.fields[stage]}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=10 if self._console.width < _NARROW else 28),
            _Count(table_column=Column(no_wrap=True, justify="right")),
            _Times(table_column=Column(no_wrap=True)),
            TextColumn("[dim]{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            console=self._console,
            transient=True,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, tuple[float, str]] = {}

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
                    self.stage(stage, purpose(stage))
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
            self._last_line[name] = (time.monotonic(), "")

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """Show that `done` of `total` units (None where unknown) of a running stage are finished."""
        if self._console.is_terminal:
            bar = self._bar(name)
            self._bars.update(bar, completed=done, total=total)
            why = purpose(name)
            if note:
                self._bars.update(bar, description=escape(f"{why}: {note}" if why else note))
        else:
            units = f"{done}/{total}" if total is not None else f"{done}"
            self._progress_line(name, f"{name}: {units} {note}".rstrip())

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

    def _progress_line(self, name: str, line: str) -> None:
        shown_at, shown = self._last_line.get(name, _NEVER)
        now = time.monotonic()
        if line != shown and now - shown_at >= _LINE_INTERVAL_S:
            self._line(line)
            self._last_line[name] = (now, line)

    def _line(self, text: str) -> None:
        self._console.print(Text(printable(text)), soft_wrap=True)
