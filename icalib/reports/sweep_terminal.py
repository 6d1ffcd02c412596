"""The terminal view of a sweep, on standard error: the best trials at the end, or what a dry sweep would select."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from icalib.core.parquet import read_parquet
from icalib.metrics.catalogue import find_metric, metrics_among
from icalib.reports.comparison import MISSING, format_share, format_spread
from icalib.reports.console import people_console, titled_table
from icalib.reports.sweep_lead import lead_of, ties_text
from icalib.reports.sweep_table import NUM_BEST, states_text, trial_table, winners_command
from icalib.sweeps.folder import DRY_SCHEMA, Best, SweepFolder
from icalib.sweeps.ties import ties
from icalib.sweeps.trials import brief, ranked, settings_text, short_names, sweep_trials

_MOST_DRY_ROWS = 40


def print_sweep(folder: SweepFolder, console: Console | None = None) -> None:
    """Print the best trials of a sweep, what failed, and the best trial's metrics on validation and test."""
    console = console or people_console()
    settings, trials = folder.settings, sweep_trials(folder)
    order, tied = ranked(trials, settings.metrics), ties(folder, trials)
    lead = lead_of(order, settings.metrics, tied)
    if lead is not None:
        console.print(Text(lead.text, style="" if lead.is_significant else "yellow"))
    unchanged = ties_text(tied, len(order))
    if unchanged is not None:
        console.print(Text(unchanged, style="yellow"))
    front = "; Pareto front first" if len(settings.metrics) > 1 else ""
    headings, rows = trial_table(order[:NUM_BEST], settings.metrics)
    table = _table(
        f"{settings.space}, {settings.method} on {settings.data.name}: {states_text(trials)}",
        f"validation pools; {'± sd over seeds' if settings.seeds > 1 else 'one seed'}{front}",
        headings,
        texts=("settings",),
    )
    for index, row in enumerate(rows):
        table.add_row(*map(Text, row), style="" if index else "bold")
    console.print(table)
    for trial in trials:
        if trial.error is not None:
            told = f" ({settings_text(trial.settings)}): {brief(trial.error)}"
            console.print(Text.assemble((f"trial {trial.number} failed", "red"), told), soft_wrap=True)
    winner = folder.best()
    if winner is not None:
        console.print(_winner_table(winner, tuple(settings.metrics)))
        console.print(Text(winners_command(folder, winner), style="dim"), soft_wrap=True)


def _winner_table(winner: Best, metrics: Sequence[str]) -> Table:
    table = _table(
        f"Winner: trial {winner.trial}",
        "chosen on validation; test was computed once, at the end",
        ("metric", "validation", "test"),
        texts=("metric",),
    )
    known = {**winner.validation, **winner.test}
    for metric in dict.fromkeys((*metrics, *metrics_among(known))):
        if metric != "num_pools":
            spreads = (format_spread(*of.get(metric, (None, None))) for of in (winner.validation, winner.test))
            table.add_row(find_metric(metric).name, *spreads)
    return table


def print_dry(folder: SweepFolder, console: Console | None = None) -> None:
    """Print what the trials of a dry sweep would select, means over the seeds."""
    console = console or people_console()
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for row in read_parquet(folder.dry_path, schema=DRY_SCHEMA).to_pylist():
        rows.setdefault(row["trial"], []).append(row)
    tried = {
        number: {param["name"]: json.loads(param["value"]) for param in found[0]["params"]}
        for number, found in rows.items()
    }
    names = short_names(list(dict.fromkeys(name for one in tried.values() for name in one)))
    table = _table(
        f"{folder.settings.space}, {folder.settings.method} on {folder.settings.data.name}: round 1, nothing trained",
        "right: fraction of the selected pools or pairs whose labels are right; all right: if every pool were taken",
        ("trial", "settings", "pools", "of", "right", "all right", "pairs", "right", "with intents"),
        texts=("settings",),
    )
    shown = sorted(sorted(rows, key=lambda number: _right_pools(rows[number]), reverse=True)[:_MOST_DRY_ROWS])
    for number in shown:
        found = rows[number]
        table.add_row(
            str(number),
            Text(settings_text(tried[number], names)),
            _count(found, "num_pseudo_pools"),
            _count(found, "num_pools_scored"),
            _share(found, "pseudo_accuracy"),
            _share(found, "base_accuracy"),
            _count(found, "num_pseudo_pairs"),
            _share(found, "pair_accuracy"),
            _count(found, "num_selected_intents"),
        )
    console.print(table)
    if len(shown) < len(rows):
        console.print(
            f"the {len(shown)} trials that select the most right pools, of {len(rows)}; the table file has all"
        )


def _right_pools(rows: Sequence[Mapping[str, Any]]) -> float:
    """Selected pools whose labels are right, summed over seeds; all that are selected where gold is unknown."""
    return sum(
        row["num_pseudo_pools"] * (1.0 if row["pseudo_accuracy"] is None else row["pseudo_accuracy"]) for row in rows
    )


def _count(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    return f"{fmean(row[column] for row in rows):,.0f}"


def _share(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    known = [row[column] for row in rows if row[column] is not None]
    return format_share(fmean(known)) if known else MISSING


def _table(title: str, caption: str, headings: Sequence[str], texts: Sequence[str]) -> Table:
    """A table whose columns are numbers, never cut, but for those of texts, which wrap."""
    table = titled_table(title, caption)
    for name in headings:
        if name in texts:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table
