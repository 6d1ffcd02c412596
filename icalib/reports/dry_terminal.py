"""The terminal view of `--dry`: a row for each kind of stage, on standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from icalib.reports.console import people_console, titled_table
from icalib.reports.stage_purpose import purpose

if TYPE_CHECKING:
    from icalib.pipeline.dry import DryStage


def print_stages(stages: Sequence[DryStage], console: Console | None = None) -> None:
    """Print the stages, those of the same name in one row."""
    console = console or people_console()
    table = titled_table()
    for name in ("stage", "", "state"):
        table.add_column(name, no_wrap=True)
    for name in dict.fromkeys(str(stage.name) for stage in stages):
        group = [stage for stage in stages if str(stage.name) == name]
        table.add_row(name, Text(purpose(name), style="dim"), _state(group))
    table.add_section()
    table.add_row("all", "", _state(stages))
    console.print(table)


def _state(stages: Sequence[DryStage]) -> str:
    cached = sum(stage.is_cached for stage in stages)
    if len(stages) == 1:
        return "cached" if cached else "to compute"
    return f"{cached} of {len(stages)} cached"
