"""The terminal view of a sweep: trials as they run, and the best at the end, on standard error."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType
from typing import Any, Self, final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from icalib.core.parquet import read_parquet
from icalib.metrics.catalogue import find_metric, metrics_among
from icalib.metrics.metric import Direction
from icalib.reports.comparison import MISSING, format_seconds, format_share, format_spread, format_value
from icalib.reports.console import people_console, titled_table
from icalib.reports.sweep_lead import lead_of, ties_text
from icalib.reports.sweep_trials import (
    GOALS,
    NUM_BEST,
    Trial,
    metrics_beside,
    param_names,
    ranked,
    settings_text,
    short_names,
    sweep_trials,
    winners_command,
)
from icalib.sweeps.folder import DRY_SCHEMA, Best, State, SweepFolder, SweepSettings, decoded_params, order_of
from icalib.sweeps.ties import ties

_NUM_RECENT = 8
_STYLES: Mapping[State, str] = {"complete": "green", "pruned": "dim", "failed": "red", "running": "cyan"}


def print_sweep(folder: SweepFolder, console: Console | None = None) -> None:
    """Print the best trials of a sweep, what failed, and the best trial's metrics on validation and test."""
    console = console or people_console()
    settings, trials = folder.settings, sweep_trials(folder)
    names = short_names(param_names(trials))
    best = ranked(trials, settings.metrics)[:NUM_BEST]
    beside = metrics_beside(best, settings.metrics)
    table = _table(
        f"{settings.space}, {settings.method} on {settings.data.name}: {_states_text(trials)}",
        _caption(settings),
        ("trial",),
        ("settings",),
        (*_metric_titles(settings.metrics), *(find_metric(name).title for name in beside), "time"),
    )
    for index, trial in enumerate(best):
        cells = [format_spread(trial.mean(metric), trial.deviation(metric)) for metric in settings.metrics]
        table.add_row(
            str(trial.number),
            Text(settings_text(trial.params, names)),
            *cells,
            *(format_value(trial.mean(name)) for name in beside),
            format_seconds(trial.seconds),
            style="" if index else "bold",
        )
    tied = ties(folder)
    lead = lead_of(folder, trials, settings.metrics, tied)
    if lead is not None:
        console.print(Text(lead.text, style="" if lead.is_significant else "yellow"))
    unchanged = ties_text(tied, trials)
    if unchanged is not None:
        console.print(Text(unchanged, style="yellow"))
    console.print(table)
    for trial in trials:
        if trial.state == "failed":
            console.print(_failure(trial.number, settings_text(trial.params, names), trial.error), soft_wrap=True)
    winner = folder.best()
    if winner is not None:
        console.print(_winner_table(winner, settings.metrics))
        command = winners_command(folder, winner)
        console.print(Text(command, style="dim"), soft_wrap=True)


_MOST_DRY_ROWS = 40


def print_dry(folder: SweepFolder, console: Console | None = None) -> None:
    """Print what the trials of a dry sweep would select, means over the seeds."""
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for row in read_parquet(folder.dry_path, schema=DRY_SCHEMA).to_pylist():
        rows.setdefault(row["trial"], []).append(row)
    params = {number: decoded_params(found[0]["params"]) for number, found in rows.items()}
    names = short_names(list(dict.fromkeys(name for one in params.values() for name in one)))
    table = _table(
        f"{folder.settings.space}, {folder.settings.method} on {folder.settings.data.name}: round 1, nothing trained",
        "right: fraction of the selected pools or pairs whose labels are right; all right: if every pool were taken",
        ("trial",),
        ("settings",),
        ("pools", "of", "right", "all right", "pairs", "right", "with intents"),
    )
    shown = sorted(sorted(rows, key=lambda number: _right_pools(rows[number]), reverse=True)[:_MOST_DRY_ROWS])
    for number in shown:
        found = rows[number]
        table.add_row(
            str(number),
            Text(settings_text(params[number], names)),
            _count(found, "num_pseudo_pools"),
            _count(found, "num_pools_scored"),
            _share(found, "pseudo_accuracy"),
            _share(found, "base_accuracy"),
            _count(found, "num_pseudo_pairs"),
            _share(found, "pair_accuracy"),
            _count(found, "num_selected_intents"),
        )
    console = console or people_console()
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


@final
@dataclass(frozen=True)
class _Ended:
    """A trial that has ended."""

    number: int
    settings: str
    state: State
    values: Mapping[str, float]
    seconds: float


@final
class SweepProgress:
    """Shows which trials are running and how they ended; use it as a context manager.

    On a terminal one table is updated in place and removed when the sweep ends. Elsewhere (logs, jobs on a
    cluster) every trial that ended is one line.

    Args:
        metrics: what is tuned, and where it should go.
        console: where to print.
    """

    def __init__(self, metrics: Mapping[str, Direction], console: Console | None = None) -> None:
        self._metrics, self._num_trials = metrics, 0
        self._console = console or people_console()
        self._running: dict[int, tuple[str, float]] = {}
        self._ended: dict[int, _Ended] = {}
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def sweep_started(self, earlier: Sequence[Trial], num_trials: int) -> None:
        """Show which trials ended before, and the total number of trials."""
        self._num_trials = num_trials
        for trial in earlier:
            if trial.state in ("complete", "pruned"):
                self._ended[trial.number] = _outcome(trial, self._metrics)

    def trial_started(self, number: int, params: Mapping[str, Any]) -> None:
        """Show that a trial has started, or resumes after an interruption."""
        self._ended.pop(number, None)  # its run had ended before the interruption, unreported
        self._running[number] = settings_text(params, short_names(list(params))), time.monotonic()
        self._live.refresh()

    def trial_finished(self, trial: Trial) -> None:
        """Show that a trial has ended."""
        self._running.pop(trial.number, None)
        ended = _outcome(trial, self._metrics)
        self._ended[trial.number] = ended
        if trial.state == "failed":
            self._console.print(_failure(trial.number, ended.settings, trial.error), soft_wrap=True)
        elif not self._console.is_terminal:
            self._console.print(Text(self._line(ended)), soft_wrap=True)
        self._live.refresh()

    def _line(self, ended: _Ended) -> str:
        values = ", ".join(
            f"{find_metric(name).title} {format_value(ended.values.get(name))}" for name in self._metrics
        )
        outcome = f"trial {ended.number} {ended.state} in {format_seconds(ended.seconds)}: {values}"
        best = self._best()
        of_all = f"{len(self._ended)}/{self._num_trials}; " if self._num_trials else ""
        so_far = f"best so far: trial {best.number}" if best else "none complete so far"
        return f"{outcome}; {ended.settings} ({of_all}{so_far})"

    def _render(self) -> Table:
        best = self._best()
        recent = list(self._ended.values())[-_NUM_RECENT:]
        shown = recent if best is None or best in recent else [best, *recent]
        table = _table(
            self._counts(),
            "bold: the best so far" if best else "",
            ("trial", "state"),
            ("settings",),
            (*_metric_titles(self._metrics), "time"),
        )
        for one in shown:
            values = [format_value(one.values.get(metric)) for metric in self._metrics]
            table.add_row(
                str(one.number),
                Text(one.state, style=_STYLES[one.state]),
                Text(one.settings),
                *values,
                format_seconds(one.seconds),
                style="bold" if one is best else "",
            )
        for number, (settings, started) in self._running.items():
            elapsed = format_seconds(time.monotonic() - started)
            table.add_row(
                str(number),
                Text("running", style=_STYLES["running"]),
                Text(settings),
                *[MISSING] * len(self._metrics),
                elapsed,
            )
        return table

    def _counts(self) -> str:
        states = Counter(one.state for one in self._ended.values())
        counts = [f"{count} {state}" for state, count in states.items()] + [f"{len(self._running)} running"]
        return ", ".join(counts) + (f", {self._num_trials} in total" if self._num_trials else "")

    def _best(self) -> _Ended | None:
        """The complete trial that would win now: by all metrics in their order, the earliest of several."""
        metrics = self._metrics
        complete = [one for one in self._ended.values() if one.state == "complete"]
        candidates = [one for one in complete if metrics.keys() <= one.values.keys()]
        return min(
            candidates,
            key=lambda one: (order_of([one.values[metric] for metric in metrics], metrics), one.number),
            default=None,
        )


def _outcome(trial: Trial, metrics: Mapping[str, Direction]) -> _Ended:
    values = {metric: mean for metric in metrics if (mean := trial.mean(metric)) is not None}
    settings = settings_text(trial.params, short_names(list(trial.params)))
    return _Ended(trial.number, settings, trial.state, values, trial.seconds)


def _table(title: str, caption: str, keys: Sequence[str], texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = titled_table(title, caption)
    for name in keys:
        table.add_column(name, no_wrap=True)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _caption(settings: SweepSettings) -> str:
    parts = ["validation pools", "± sd over seeds" if settings.seeds > 1 else "one seed"]
    return "; ".join([*parts, "Pareto front first"] if len(settings.metrics) > 1 else parts)


def _winner_table(winner: Best, metrics: Mapping[str, Direction]) -> Table:
    table = _table(
        f"Winner: trial {winner.trial}",
        "chosen on validation; test was computed once, at the end",
        ("metric",),
        (),
        ("validation", "test"),
    )
    known = {**winner.validation, **winner.test}
    for metric in dict.fromkeys((*metrics, *metrics_among(known))):
        if metric != "num_pools":
            validation, test = (values.get(metric, (None, None)) for values in (winner.validation, winner.test))
            table.add_row(find_metric(metric).name, format_spread(*validation), format_spread(*test))
    return table


def _metric_titles(metrics: Mapping[str, Direction]) -> list[str]:
    return [f"{find_metric(metric).title} {GOALS[direction]}" for metric, direction in metrics.items()]


def _failure(number: int, settings: str, error: str | None) -> Text:
    why = _short(error or "no error was recorded")
    return Text.assemble((f"trial {number} failed", "red"), f" ({settings}): {why}")


def _short(error: str) -> str:
    """A message of many lines, a worker's traceback, by its beginning and what was raised; the report has it all."""
    first, *others = error.splitlines()
    raised = [line for line in others if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    return f"{first} … {raised[-1]} (the report has all of it)" if raised else error


def _states_text(trials: Sequence[Trial]) -> str:
    counts = Counter(trial.state for trial in trials)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no trial has started"


def _count(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    return f"{fmean(row[column] for row in rows):,.0f}"


def _share(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    known = [row[column] for row in rows if row[column] is not None]
    return format_share(fmean(known)) if known else MISSING
