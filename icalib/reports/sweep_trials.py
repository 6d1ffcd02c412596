"""Trials of a sweep as its views show them: seeds put together, the best first, lines through equal settings."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from icalib.metrics.metric import Direction
from icalib.reports.comparison import run_command
from icalib.sweeps.folder import Best, State, SweepFolder, decoded_params, order_of

NUM_BEST = 10
"""Number of trials in a table of the best."""

GOALS: Mapping[Direction, str] = {"maximize": "↑", "minimize": "↓"}
"""Marks behind the names of tuned metrics."""

BESIDE = ("R@1", "ECE", "NLL")
"""Metrics that tables of trials show beside the tuned ones, where trials have them."""

LINE_VALUES = range(3, 21)
"""How many values of a setting make a line: fewer show no trend, more are a cloud."""


@final
@dataclass(frozen=True)
class Trial:
    """One choice of settings; `rows` are those of TRIAL_SCHEMA, one a seed."""

    number: int
    state: State
    params: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]

    def mean(self, metric: str) -> float | None:
        """Mean validation value over the seeds; None where no seed has one."""
        values = self._values(metric)
        return statistics.fmean(values) if values else None

    def deviation(self, metric: str) -> float | None:
        """Sample standard deviation over the seeds; None below two seeds."""
        values = self._values(metric)
        return statistics.stdev(values) if len(values) > 1 else None

    def mean_of(self, column: str) -> float | None:
        """Mean of a number of TRIAL_SCHEMA over the seeds; None where it is null."""
        values = [row[column] for row in self.rows if row[column] is not None]
        return statistics.fmean(values) if values else None

    @property
    def seconds(self) -> float:
        """Wall time of all seeds."""
        return sum(row["seconds"] or 0.0 for row in self.rows)

    @property
    def stages(self) -> list[Mapping[str, Any]]:
        """Stages of all seeds."""
        return [stage for row in self.rows for stage in row["stages"] or ()]

    @property
    def seconds_saved(self) -> float:
        """What computing the reused stages took when they were computed."""
        return sum(stage["seconds"] for stage in self.stages if stage["reused"])

    @property
    def error(self) -> str | None:
        """The error of the first seed that failed."""
        return next((row["error"] for row in self.rows if row["error"]), None)

    def _values(self, metric: str) -> list[float]:
        return [
            entry["value"]
            for row in self.rows
            for entry in row["metrics"] or ()
            if entry["split"] == "validation" and entry["name"] == metric and math.isfinite(entry["value"])
        ]


@final
@dataclass(frozen=True)
class Line:
    """Trials that differ in one setting alone, by its value; `others` are their common values of the others."""

    name: str
    trials: tuple[Trial, ...]
    others: Mapping[str, Any]

    @property
    def values(self) -> list[Any]:
        """Values of the setting, ascending."""
        return [trial.params[self.name] for trial in self.trials]


def sweep_trials(folder: SweepFolder) -> list[Trial]:
    """All trials that have started, by number."""
    num_seeds = folder.settings.seeds
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for row in folder.trials().sort_by([("trial", "ascending"), ("seed", "ascending")]).to_pylist():
        rows.setdefault(row["trial"], []).append(row)
    return [
        Trial(number, _state(members, num_seeds), decoded_params(members[0]["params"] or []), tuple(members))
        for number, members in rows.items()
    ]


def complete(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> list[Trial]:
    """Complete trials that have a value of every metric."""
    return [t for t in trials if t.state == "complete" and all(t.mean(metric) is not None for metric in metrics)]


def ranked(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> list[Trial]:
    """Complete trials, those of the Pareto front first, then by the first metric; equal ones by number."""
    candidates = complete(trials, metrics)
    front = {trial.number for trial in pareto_front(candidates, metrics)}
    return sorted(candidates, key=lambda t: (t.number not in front, _losses(t, metrics), t.number))


def pareto_front(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> list[Trial]:
    """Complete trials that no other trial dominates: at least as good in all metrics and better in one."""
    candidates = complete(trials, metrics)
    losses = [_losses(trial, metrics) for trial in candidates]
    return [
        trial
        for trial, own in zip(candidates, losses, strict=True)
        if not any(other != own and all(b <= a for a, b in zip(own, other, strict=True)) for other in losses)
    ]


def metrics_beside(trials: Sequence[Trial], metrics: Mapping[str, Direction]) -> list[str]:
    """Metrics that are shown but not tuned: those of BESIDE that any trial has."""
    return [name for name in BESIDE if name not in metrics and any(trial.mean(name) is not None for trial in trials)]


def param_names(trials: Sequence[Trial]) -> list[str]:
    """Names of the settings that any trial has, in order of first appearance."""
    return list(dict.fromkeys(name for trial in trials for name in trial.params))


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The last parts of dotted names, as many as distinguish them.

    Example:
        >>> short_names(["regime.rule.scale", "head.scale", "head.dropout"])
        {'regime.rule.scale': 'rule.scale', 'head.scale': 'head.scale', 'head.dropout': 'dropout'}
    """

    def last(name: str, num_parts: int) -> str:
        return ".".join(name.split(".")[-num_parts:])

    def shortest(name: str) -> str:
        lengths = range(1, name.count(".") + 1)
        return next((last(name, n) for n in lengths if sum(last(o, n) == last(name, n) for o in names) == 1), name)

    return {name: shortest(name) for name in names}


def param_text(value: Any) -> str:
    """A setting's value for people: at most four significant digits; a dash where a trial hasn't the setting.

    Example:
        >>> param_text(0.30000000000000004), param_text(3.14159e-05), param_text("rbf"), param_text(True)
        ('0.3', '3.142e-05', 'rbf', 'true')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else "–" if value is None else json.dumps(value)


def settings_text(params: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Settings in one line; `names` are their display names."""
    return ", ".join(f"{names[name]}={param_text(value)}" for name, value in params.items())


def winners_command(folder: SweepFolder, winner: Best) -> str:
    """What runs the winner's settings."""
    path = folder.path.resolve()
    return run_command(path / winner.config, path.parents[1])


def lines_by_param(trials: Sequence[Trial]) -> dict[str, list[Line]]:
    """For each setting that takes some but not many values, the lines of trials in which it alone differs."""
    lines = {name: _lines(trials, name) for name in param_names(trials)}
    return {name: found for name, found in lines.items() if found}


def varies_one_at_a_time(trials: Sequence[Trial], lines: Mapping[str, Sequence[Line]]) -> bool:
    """Whether every trial is on a line and every setting has one line."""
    on_lines = {trial.number for found in lines.values() for line in found for trial in line.trials}
    settings = {_key(trial.params) for trial in trials}
    covered = {_key(trial.params) for trial in trials if trial.number in on_lines}
    return bool(settings) and settings == covered and all(len(found) == 1 for found in lines.values())


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Orders values of a setting: numbers by size, then others by their text."""
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)


def _state(rows: Sequence[Mapping[str, Any]], num_seeds: int) -> State:
    states = {row["state"] for row in rows}
    unfinished: tuple[State, ...] = ("failed", "pruned", "running")
    for state in unfinished:
        if state in states:
            return state
    return "complete" if len(rows) == num_seeds else "running"


def _losses(trial: Trial, metrics: Mapping[str, Direction]) -> tuple[float, ...]:
    """A complete trial's means, the better the lower."""
    return order_of([mean for metric in metrics if (mean := trial.mean(metric)) is not None], metrics)


def _lines(trials: Sequence[Trial], name: str) -> list[Line]:
    groups: dict[str, dict[str, Trial]] = {}
    for trial in trials:
        if name in trial.params:
            others = {other: value for other, value in trial.params.items() if other != name}
            # A point on several lines may have been tried for each: one is enough.
            groups.setdefault(_key(others), {}).setdefault(_key({name: trial.params[name]}), trial)
    return [
        Line(name, tuple(sorted(group.values(), key=lambda trial: sort_key(trial.params[name]))), json.loads(others))
        for others, group in groups.items()
        if len(group) in LINE_VALUES
    ]


def _key(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)
