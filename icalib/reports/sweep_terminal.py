"""The terminal view of a sweep, on standard error: the best trials at the end, or what a dry sweep would select."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from icalib.core.parquet import read_parquet
from icalib.reports.comparison import format_share
from icalib.reports.console import people_console, titled_table
from icalib.reports.sweep_lead import lead_text, ties_text
from icalib.reports.sweep_table import NUM_BEST, states_text, trial_table, winners_command, winners_metrics
from icalib.sweeps.folder import DRY_SCHEMA, SweepFolder
from icalib.sweeps.ties import ties
from icalib.sweeps.trials import brief, ranked, settings_text, short_names, sweep_trials

_MOST_DRY_ROWS = 40
_DRY_COLUMNS = (
    ("pools", "num_pseudo_pools"),
    ("of", "num_pools_scored"),
    ("right", "pseudo_accuracy"),
    ("all right", "base_accuracy"),
    ("pairs", "num_pseudo_pairs"),
    ("right", "pair_accuracy"),
    ("with intents", "num_selected_intents"),
)


def print_sweep(folder: SweepFolder, console: Console | None = None) -> None:
    """Print the best trials of a sweep, what failed, and the best trial's metrics on validation and test."""
    console = console or people_console()
    settings, trials = folder.settings, sweep_trials(folder)
    order, tied = ranked(trials, settings.metrics), ties(folder, trials)
    for text in (lead_text(order, settings.metrics, tied), ties_text(tied, len(order))):
        if text is not None:
            console.print(Text(text, style="yellow"))
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
        table = _table(
            f"Winner: trial {winner.trial}",
            "chosen on validation; test was computed once, at the end",
            ("metric", "validation", "test"),
            texts=("metric",),
        )
        for row in winners_metrics(winner, settings.metrics):
            table.add_row(*row)
        console.print(table)
        console.print(Text(winners_command(folder, winner), style="dim"), soft_wrap=True)


def print_dry(folder: SweepFolder, console: Console | None = None) -> None:
    """Print what the trials of a dry sweep would select, means over the seeds."""
    console = console or people_console()
    found = read_parquet(folder.dry_path, schema=DRY_SCHEMA)
    settings = {
        row["trial"]: {param["name"]: json.loads(param["value"]) for param in row["params"]}
        for row in found.select(["trial", "params"]).to_pylist()
    }
    names = short_names(list(dict.fromkeys(name for one in settings.values() for name in one)))
    means = found.group_by("trial").aggregate([(column, "mean") for _, column in _DRY_COLUMNS]).to_pylist()
    shown = sorted(means, key=_right_pools, reverse=True)[:_MOST_DRY_ROWS]
    table = _table(
        f"{folder.settings.space}, {folder.settings.method} on {folder.settings.data.name}: round 1, nothing trained",
        "right: fraction of the selected pools or pairs whose labels are right; all right: if every pool were taken",
        ("trial", *(heading for heading, _ in _DRY_COLUMNS), "settings"),
        texts=("settings",),
    )
    for row in sorted(shown, key=lambda row: row["trial"]):
        values = {column: row[f"{column}_mean"] for _, column in _DRY_COLUMNS}
        cells = [
            format_share(value) if column.endswith("accuracy") else f"{value:,.0f}" for column, value in values.items()
        ]
        table.add_row(str(row["trial"]), *cells, Text(settings_text(settings[row["trial"]], names)))
    console.print(table)
    if len(shown) < len(means):
        console.print(
            f"the {len(shown)} trials that select the most right pools, of {len(means)}; the table file has all"
        )


def _right_pools(means: Mapping[str, Any]) -> float:
    """Selected pools whose labels are right; all that are selected where gold is unknown."""
    accuracy = means["pseudo_accuracy_mean"]
    return means["num_pseudo_pools_mean"] * (1.0 if accuracy is None else accuracy)


def _table(title: str, caption: str, headings: Sequence[str], texts: Sequence[str]) -> Table:
    """A table whose columns are numbers, never cut, but for those of texts, which wrap."""
    table = titled_table(title, caption)
    for name in headings:
        if name in texts:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table
