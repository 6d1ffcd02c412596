"""The terminal view of `icalib plan`: a row per stage and the totals, on standard error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from icalib.core.run_folder import RunFolder
from icalib.reports.comparison import format_seconds
from icalib.reports.console import people_console, titled_table

_MOST_ROWS = 30


def print_plan(title: str, plan: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a plan, as `icalib plan --json` returns it."""
    console, stages, machines = console or people_console(), plan["stages"], plan["machines"]
    table = titled_table(
        f"Plan of {title}: training workers {machines['num_workers']}, threads of each {machines['threads']}, "
        f"scoring tasks at a time {machines['num_scorers']}",
        f"{plan.get('basis') or 'range: 30 % either way'}, and from early stopping or no pseudo label to all epochs "
        "with all of them; parallel workers are assumed to run at 90 % of the speed of one",
    )
    table.add_column("stage", no_wrap=True)
    for name in ("inputs", "updates", "time", "range"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages[:_MOST_ROWS]:
        updates = f"{stage['updates']:,.0f}" if stage["updates"] else ""
        table.add_row(stage["name"], f"{stage['num_inputs']:,.0f}", updates, *_times(stage))
    if len(stages) > _MOST_ROWS:
        table.add_row(f"… and {len(stages) - _MOST_ROWS} more", "", "", "", "")
    seconds = plan["seconds"]
    table.add_section()
    table.add_row("all", "", "", *_times({**seconds, "seconds": seconds["expected"]}))
    console.print(table)
    memory = plan["memory"]
    parts = [f"memory of a training worker: about {memory / 2**30:.1f} GiB" if memory else "memory isn't estimated"]
    if plan["stages_reused"]:
        parts.append(f"{plan['stages_reused']} more stages are shared and computed once")
    if "cost" in plan:
        parts.append(f"cost: {_cost(plan['cost'])}")
    uncounted = [stage["name"] for stage in stages if not stage["num_inputs"]]
    if uncounted:
        parts.append(f"not counted: {', '.join(uncounted)}")
    console.print(Text("; ".join(parts)), soft_wrap=True)
    if "per_million_pairs" in plan:
        console.print(Text(_per_million(plan)), soft_wrap=True)


def _per_million(plan: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for one in plan["per_million_pairs"]:
        hours = {name: _hours(seconds) for name, seconds in one["seconds"].items()}
        passes = "1 pass" if one["passes"] == 1 else f"{one['passes']} passes with dropout"
        cost = f", cost {_cost(one['cost'])}" if "cost" in one else ""
        parts.append(f"{hours['expected']} h ({hours['low']} to {hours['high']}) with {passes}{cost}")
    return f"a million pairs on {plan['backbone']}: {'; '.join(parts)}"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def _cost(cost: Mapping[str, float]) -> str:
    return f"{cost['expected']:.2f} ({cost['low']:.2f} to {cost['high']:.2f})"


def planned_line(folder: RunFolder) -> str:
    """What a finished run's planned stages took, against what was planned; empty if there was no plan."""
    planned = folder.planned
    taken = {stage["name"]: float(stage["seconds"]) for stage in folder.stages if stage["name"] in planned}
    if not taken:
        return ""
    expected, low, high = (sum(planned[name][of] for name in taken) for of in ("seconds", "low", "high"))
    return (
        f"planned: {format_seconds(expected)} ({format_seconds(low)} to {format_seconds(high)}) for stages that took "
        f"{format_seconds(sum(taken.values()))}"
    )


def _times(stage: Mapping[str, float]) -> tuple[str, str]:
    return format_seconds(stage["seconds"]), f"{format_seconds(stage['low'])} – {format_seconds(stage['high'])}"
