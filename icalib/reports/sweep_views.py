"""The views of a sweep: its tables in the terminal, report.html and trials.csv."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, final

import numpy as np
from rich.console import Console
from rich.table import Column
from rich.text import Text

from icalib.core.files import atomic_write
from icalib.core.parquet import read_parquet
from icalib.core.run_folder import RunFolder, run_command
from icalib.core.storage import push
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import FloatArray
from icalib.metrics.significance import paired_test
from icalib.reports.comparison import (
    COLUMNS,
    format_difference,
    format_fraction,
    format_p,
    format_seconds,
    format_share,
    format_spread,
    format_value,
    heading,
    with_outside_metrics,
)
from icalib.reports.console import people_console, text_table
from icalib.reports.paired_tests import SIGNIFICANT, values_per_pool
from icalib.sweeps.folder import BEST_CONFIG, DRY_SCHEMA, SweepFolder
from icalib.sweeps.trials import Trial, brief, ranked, settings_text, short_names, sweep_trials

_NUM_BEST = 10
_LEAD_DIGITS = 4
_BESIDE = ("R@1", "ECE", "NLL")
"""Metrics that stand beside the tuned ones, where trials have them."""
_DRY_COLUMNS = (
    ("pools", "num_pseudo_pools"),
    ("of", "num_pools_scored"),
    ("right", "pseudo_accuracy"),
    ("all right", "base_accuracy"),
    ("pairs", "num_pseudo_pairs"),
    ("right", "pair_accuracy"),
    ("with intents", "num_selected_intents"),
)
_MOST_DRY = 40
"""Rows of a dry sweep's table on the terminal."""


@final
class SweepSummary:
    """What is said and shown of a sweep, finished or not; a DamagedFileError if a file can't be read."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self.settings = folder.settings
        self.metrics = folder.settings.metrics
        self.trials = sweep_trials(folder)
        self.order = ranked(self.trials, self.metrics)
        self.winner = folder.best()

    @property
    def unfinished(self) -> list[Trial]:
        """Trials that failed or were pruned."""
        return [trial for trial in self.trials if trial.state in ("failed", "pruned")]

    @property
    def states(self) -> str:
        """How many trials are in which state."""
        counts = Counter(trial.state for trial in self.trials)
        return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no trial has started"

    @property
    def lead(self) -> str | None:
        """How far the best trial leads the next in the first metric, if it does; None below two complete trials.

        The two are tested over the validation pools where their values of single pools are known.
        """
        if len(self.order) < 2:
            return None
        (best, second, *_), metric = self.order, next(iter(self.metrics))
        difference = (best.mean(metric) or 0.0) - (second.mean(metric) or 0.0)
        if all(trial.validation == best.validation for trial in self.order):
            return (
                f"All {len(self.order)} trials have the same results on validation: what they tune "
                "has no effect here, such as settings of a part without a weight (docs/methods.md, Parts)."
            )
        if round(difference, _LEAD_DIGITS) == 0:
            tied = f"Trials {best.number} and {second.number}, the first two of {len(self.order)}, are tied"
            return f"{tied} in {find_metric(metric).title} on validation."
        lead = (
            f"Trial {best.number} leads trial {second.number}, the next of {len(self.order)}, by "
            f"{find_metric(metric).title} {format_difference(difference, digits=_LEAD_DIGITS)} on validation"
        )
        values = _per_pool([*best.runs, *second.runs], metric)
        if values is None or values.shape[1] < 2:
            return f"{lead}. Whether that is more than chance was not tested; `--seeds 3` shows the noise."
        first, other = np.split(values, [len(best.runs)])
        p = paired_test(first, other, seed=0).p_value
        tested = f"(p {format_p(p)}, paired over the validation pools)"
        if p < SIGNIFICANT:
            return f"{lead}, more than chance between the two {tested}."
        return f"{lead}. That could be chance {tested}: the settings of both are as good a choice."

    def best_trials(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows: number, metrics, time, pseudo labels where there are any, and settings."""
        trials = self.order[:_NUM_BEST]
        beside = [
            name for name in _BESIDE if name not in self.metrics and any(t.mean(name) is not None for t in trials)
        ]
        labelled = {trial.number: found for trial in trials if (found := _pseudo_labels(trial))}
        names = short_names(list(dict.fromkeys(name for trial in trials for name in trial.settings)))
        headings = ["trial", *map(heading, self.metrics), *(find_metric(name).title for name in beside), "time"]
        headings += [*(("pseudo-labelled", "right") if labelled else ()), "settings"]
        rows = [
            [
                str(trial.number),
                *(format_spread(trial.mean(name), trial.deviation(name)) for name in self.metrics),
                *(format_value(trial.mean(name)) for name in beside),
                format_seconds(trial.seconds),
                *(labelled.get(trial.number, ("", "")) if labelled else ()),
                settings_text(trial.settings, names),
            ]
            for trial in trials
        ]
        return headings, rows

    def winners_metrics(self) -> list[tuple[str, ...]]:
        """Return name, validation and test of what was tuned, then of the columns of every comparison."""
        if self.winner is None:
            return []
        validation, test = self.winner.validation, self.winner.test
        names = dict.fromkeys((*self.metrics, *with_outside_metrics(COLUMNS, {**validation, **test})))
        return [
            (find_metric(name).title, *(self._winners(found.get(name, (None, 0.0))) for found in (validation, test)))
            for name in names
            if name in validation or name in test
        ]

    def _winners(self, found: tuple[float | None, float]) -> str:
        assert self.winner is not None
        mean, deviation = found
        return format_spread(mean, deviation if self.winner.seeds > 1 and mean is not None else None)

    @property
    def winners_command(self) -> str:
        """What runs the winner's settings; empty before there is one."""
        path = self.folder.path.resolve()
        return run_command(path / BEST_CONFIG, path.parents[1]) if self.winner else ""


def _per_pool(runs: Sequence[RunFolder], metric: str) -> FloatArray | None:
    """Values of the validation pools that count in all runs, a row a run; None where they are not known."""
    is_known = all(run.has_predictions("validation") for run in runs)
    return values_per_pool(runs, metric, "validation") if is_known else None


def _pseudo_labels(trial: Trial) -> tuple[str, str] | None:
    """Pools that the last round pseudo-labelled, and the fraction of them that is right; means over the seeds."""
    last = [rounds[-1] for run in trial.runs if (rounds := run.round_summaries())]
    if not last:
        return None
    right = [one.pool_accuracy for one in last if one.pool_accuracy is not None]
    pools = fmean(one.num_pools_selected for one in last)
    return f"{pools:,.0f}", format_share(fmean(right) if right else None)


def write_views(folder: SweepFolder) -> None:
    """Write trials.csv and report.html; a DamagedFileError if a file of the sweep can't be read."""
    summary = SweepSummary(folder)
    _write_csv(summary)
    _write_report(summary)
    push(folder.path)


def _write_csv(summary: SweepSummary) -> None:
    """Write a row per trial and finished seed; a column per setting, a metric (`validation/F1`) and a fact."""
    rows = [_csv_row(trial, run) for trial in summary.trials for run in trial.runs or (None,)]
    names = dict.fromkeys(("trial", "state", "seed", *(name for row in rows for name in row)))
    path = summary.folder.path / "trials.csv"
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _csv_row(trial: Trial, run: RunFolder | None) -> dict[str, Any]:
    settings = {name: value if isinstance(value, str) else json.dumps(value) for name, value in trial.settings.items()}
    row: dict[str, Any] = {"trial": trial.number, "state": trial.state, **settings}
    if trial.error is not None:
        row["error"] = trial.error
    if run is not None:
        result, rounds = run.result, run.round_summaries()
        row |= {"seed": result["seed"], "seconds": result["seconds"]["total"], "run": run.name}
        row |= {f"validation/{name}": value for name, value in result["validation"].items()}
        if rounds:
            row |= {"pools_pseudo_labelled": rounds[-1].num_pools_selected, "right": rounds[-1].pool_accuracy}
            row["pairs_with_intents"] = rounds[-1].num_pairs_with_intents
    return row


def _write_report(summary: SweepSummary) -> None:
    from icalib.reports.page import write_page
    from icalib.reports.sweep_figures import pictures

    folder, settings = summary.folder, summary.settings
    stages = [stage for trial in summary.trials for run in trial.runs for stage in run.stages]
    write_page(
        "sweep.html.j2",
        folder.path / "report.html",
        title=f"Sweep of {settings.space} on {settings.data.name}",
        summary=summary,
        settings_text=settings_text,
        facts=_facts(summary),
        best_trials=summary.best_trials(),
        best_config=folder.best_config() if summary.winner else "",
        figures=list(pictures(summary.order, summary.metrics)),
        seconds={
            reused: [stage["seconds"] for stage in stages if stage["reused"] == reused] for reused in (False, True)
        },
    )


def _facts(summary: SweepSummary) -> Mapping[str, str]:
    settings = summary.settings
    facts = {
        "space": settings.space,
        "method": settings.method,
        "data": str(settings.data),
        "labelled": format_fraction(settings.labelled),
        "backbone": settings.backbone,
        "sampler": settings.sampler,
        "pruner": settings.pruner,
        "seeds": str(settings.seeds),
        "tuned, on validation": ", ".join(map(heading, settings.metrics)),
        "at most, pools": ", ".join(f"{split} {number}" for split, number in settings.limit.items()),
        "changed": settings_text(settings.settings, {name: name for name in settings.settings}),
    }
    return {name: fact for name, fact in facts.items() if fact}


def print_sweep(folder: SweepFolder, console: Console | None = None) -> None:
    """Print the best trials of a sweep, what failed, and the best trial's metrics on validation and test."""
    console = console or people_console()
    summary, settings = SweepSummary(folder), folder.settings
    if summary.lead is not None:
        console.print(Text(summary.lead, style="yellow"))
    headings, rows = summary.best_trials()
    spread = "± sd over seeds" if settings.seeds > 1 else "one seed"
    console.print(
        text_table(
            (*headings[:-1], Column(headings[-1], overflow="fold")),
            [[Text(cell, style="" if index else "bold") for cell in row] for index, row in enumerate(rows)],
            title=f"{settings.space}, {settings.method} on {settings.data.name}: {summary.states}",
            caption=f"validation pools; {spread}; time with stages that trials share",
            num_texts=0,
        )
    )
    for trial in summary.trials:
        if trial.error is not None:
            reason = f" ({settings_text(trial.settings)}): {brief(trial.error)}"
            console.print(Text.assemble((f"trial {trial.number} failed", "red"), reason), soft_wrap=True)
    if summary.winner is not None:
        title, caption = (
            f"Winner: trial {summary.winner.trial}",
            "chosen on validation; test was computed once, at the end",
        )
        metrics = summary.winners_metrics()
        console.print(text_table(("metric", "validation", "test"), metrics, title=title, caption=caption))
        console.print(Text(summary.winners_command, style="dim"), soft_wrap=True)


def print_dry(folder: SweepFolder, console: Console | None = None) -> None:
    """Print what the trials of a dry sweep would select, means over the seeds; most first, equal selections once."""
    console = console or people_console()
    found = read_parquet(folder.dry_path, schema=DRY_SCHEMA)
    settings = {
        row["trial"]: {param["name"]: json.loads(param["value"]) for param in row["params"]}
        for row in found.select(["trial", "params"]).to_pylist()
    }
    names = short_names(list(dict.fromkeys(name for one in settings.values() for name in one)))
    means = found.group_by("trial").aggregate([(column, "mean") for _, column in _DRY_COLUMNS]).sort_by("trial")
    by_selection: dict[tuple[float, ...], list[int]] = {}
    for row in means.to_pylist():
        selection = tuple(row[f"{column}_mean"] for _, column in _DRY_COLUMNS)
        by_selection.setdefault(selection, []).append(row["trial"])
    of_all = _alike(list(settings.values())) if len(settings) > 1 else {}
    rows: list[list[str]] = []
    for selection, trials in sorted(by_selection.items(), key=lambda group: group[0][0], reverse=True):
        cells = [
            format_share(value) if column.endswith("accuracy") else f"{value:,.0f}"
            for value, (_, column) in zip(selection, _DRY_COLUMNS, strict=True)
        ]
        own = {name: value for name, value in _alike([settings[one] for one in trials]).items() if name not in of_all}
        number = f"{trials[0]} and {len(trials) - 1} more" if len(trials) > 1 else str(trials[0])
        rows.append([number, *cells, settings_text(own, names)])
    notes = [
        "right: fraction of the selected pools or pairs whose labels are right; all right: if every pool were taken"
    ]
    notes += [f"all have {settings_text(of_all, names)}"] if of_all else []
    notes += [f"{len(rows) - _MOST_DRY} smaller selections are left out"] if len(rows) > _MOST_DRY else []
    if not any(selection[0] for selection in by_selection):
        notes += ["none selects a pool: try lower thresholds, or another scale"]
    sweep = folder.settings
    table = text_table(
        ("trial", *(name for name, _ in _DRY_COLUMNS), Column("settings", overflow="fold")),
        rows[:_MOST_DRY],
        title=f"{sweep.space}, {sweep.method} on {sweep.data.name}: round 1, nothing trained",
        caption="; ".join(notes),
        num_texts=0,
    )
    console.print(table)


def _alike(many: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that are the same in all."""
    first, *others = many
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
