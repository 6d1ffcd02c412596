"""Tables of a sweep's trials: for people, and trials.csv."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from icalib.core.files import whole_file
from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction
from icalib.reports.comparison import (
    ARROWS,
    COLUMNS,
    format_seconds,
    format_share,
    format_spread,
    format_value,
    run_command,
    with_outside_metrics,
)
from icalib.sweeps.folder import Best, SweepFolder
from icalib.sweeps.trials import Trial, settings_text, short_names

NUM_BEST = 10
"""Number of trials in a table of the best."""

_BESIDE = ("R@1", "ECE", "NLL")
"""Metrics that stand beside the tuned ones, where trials have them."""


def trial_table(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> tuple[list[str], list[list[str]]]:
    """Return headings and, for each trial, its number, metrics, time, pseudo labels where there are any, and settings.

    Tuned metrics have an arrow and, for several seeds, the deviation over them.
    """
    beside = [name for name in _BESIDE if name not in metrics and any(t.mean(name) is not None for t in trials)]
    labelled = {trial.number: found for trial in trials if (found := _pseudo_labels(trial))}
    names = short_names(list(dict.fromkeys(name for trial in trials for name in trial.settings)))
    headings = [
        "trial",
        *(f"{find_metric(name).title}{ARROWS[direction]}" for name, direction in metrics.items()),
        *(find_metric(name).title for name in beside),
        "time",
        *(("pseudo-labelled", "right") if labelled else ()),
        "settings",
    ]
    rows = [
        [
            str(trial.number),
            *(format_spread(trial.mean(name), trial.deviation(name)) for name in metrics),
            *(format_value(trial.mean(name)) for name in beside),
            format_seconds(trial.seconds),
            *(labelled.get(trial.number, ("", "")) if labelled else ()),
            settings_text(trial.settings, names),
        ]
        for trial in trials
    ]
    return headings, rows


def _pseudo_labels(trial: Trial) -> tuple[str, str] | None:
    """Pools that the last round pseudo-labelled, and the fraction of them that is right; means over the seeds."""
    last = [rounds[-1] for run in trial.runs if (rounds := run.round_summaries())]
    if not last:
        return None
    right = [one.pool_accuracy for one in last if one.pool_accuracy is not None]
    pools = fmean(one.num_pools_selected for one in last)
    return f"{pools:,.0f}", format_share(fmean(right) if right else None)


def states_text(trials: Sequence[Trial]) -> str:
    """How many trials are in which state."""
    counts = Counter(trial.state for trial in trials)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no trial has started"


def winners_metrics(winner: Best, metrics: Mapping[str, Direction]) -> list[tuple[str, str, str]]:
    """Name, validation and test of what was tuned, then of the columns of every comparison; means over the seeds."""
    known = {**winner.validation, **winner.test}
    names = dict.fromkeys((*metrics, *with_outside_metrics(COLUMNS, known)))
    missing = (None, None)
    return [
        (
            find_metric(name).title,
            format_spread(*winner.validation.get(name, missing)),
            format_spread(*winner.test.get(name, missing)),
        )
        for name in names
        if name in known
    ]


def winners_command(folder: SweepFolder, winner: Best) -> str:
    """What runs the winner's settings."""
    path = folder.path.resolve()
    return run_command(path / winner.config, path.parents[1])


def write_sweep_csv(folder: SweepFolder, trials: Sequence[Trial]) -> Path:
    """Write trials.csv: a row per trial and finished seed; a column per setting, a metric (`validation/F1`) and a fact.

    Raises:
        StorageError: the disk is full or can't be written.
    """
    rows = [_csv_row(trial, run) for trial in trials for run in trial.runs or (None,)]
    names = dict.fromkeys(("trial", "state", "seed", *(name for row in rows for name in row)))
    path = folder.path / "trials.csv"
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def _csv_row(trial: Trial, run: RunFolder | None) -> dict[str, Any]:
    """Numbers and texts as they are, other settings as JSON."""
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
