"""The terminal view of `--dry`: a row for each kind of stage, on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from icalib.reports.comparison import MISSING, format_seconds
from icalib.reports.console import people_console, titled_table
from icalib.reports.stage_purpose import purpose

if TYPE_CHECKING:
    from icalib.pipeline.dry import DryStage


def print_stages(stages: Sequence[DryStage], runs: Path, console: Console | None = None) -> None:
    """Print the stages, those of the same name in one row, and the time of those that aren't cached."""
    console = console or people_console()
    table = titled_table()
    for name in ("stage", "", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for name in dict.fromkeys(str(stage.name) for stage in stages):
        group = [stage for stage in stages if str(stage.name) == name]
        table.add_row(name, Text(purpose(name), style="dim"), _state(group), _time(group))
    table.add_section()
    table.add_row("all", "", _state(stages), _time(stages))
    console.print(table)
    if unknown := list(dict.fromkeys(stage.name.label for stage in stages if stage.seconds is None)):
        reason = f"no finished run under {runs} has such stages with this backbone"
        console.print(Text(f"unknown times ({', '.join(unknown)}): {reason}"), soft_wrap=True)
    if any(stage.seconds for stage in stages):
        console.print(Text(f"times: in proportion to the newest finished runs under {runs}"), soft_wrap=True)


def _state(stages: Sequence[DryStage]) -> str:
    cached = sum(stage.is_cached for stage in stages)
    if len(stages) == 1:
        return "cached" if cached else "to compute"
    return f"{cached} of {len(stages)} cached"


def _time(stages: Sequence[DryStage]) -> str:
    """Return the sum of the known times, as a minimum if there are others; empty if all stages are cached."""
    known = [stage.seconds for stage in stages if stage.seconds is not None]
    if all(stage.is_cached for stage in stages):
        return ""
    if len(known) < len(stages):
        return f"> {format_seconds(sum(known))}" if sum(known) else MISSING
    return format_seconds(sum(known))
