"""The terminal view of `icalib doctor`: a line per check and what to do about it, on standard error."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from icalib.core.check import Check, Status
from icalib.reports.console import people_console

_MARKS: Mapping[Status, tuple[str, str]] = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}
_NAME_WIDTH = 16


@final
class Examination:
    """Shows checks as they are made; use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or people_console()
        self._status = self._console.status("starting Ray")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def begins(self, what: str) -> None:
        """Show what is checked next."""
        self._status.update(f"checking {what}")

    def show(self, check: Check) -> None:
        """Show the result of a check."""
        mark, style = _MARKS[check.status]
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=4)
        row.add_column(width=_NAME_WIDTH)
        row.add_column(overflow="fold")
        row.add_row(Text(mark, style=style), Text(check.name), Text(check.found))
        if check.cure:
            row.add_row("", "", Text(f"→ {check.cure}", style="bold" if check.status == "fail" else ""))
        self._console.print(row)
