"""The stages of a run for people: the table of `--dry`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from icalib.reports.comparison import MISSING, format_seconds
from icalib.reports.console import people_console, text_table

if TYPE_CHECKING:
    from icalib.pipeline.dry import DryStage


def print_stages(stages: Sequence[DryStage], runs: Path, console: Console | None = None) -> None:
    """Print the stages, those of the same name in one row, and the time of those that aren't cached."""
    console = console or people_console()
    groups: dict[str, list[DryStage]] = {}
    for stage in stages:
        groups.setdefault(str(stage.name), []).append(stage)
    rows = [(name, _state(group), _time(group)) for name, group in groups.items()]
    table = text_table(("stage", "state", "time"), rows, num_texts=2)
    table.add_section()
    table.add_row("all", _state(stages), _time(stages))
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
