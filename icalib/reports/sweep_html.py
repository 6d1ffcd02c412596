"""One self-contained HTML page about a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, final

import plotly.graph_objects as go
from markupsafe import Markup

from icalib.metrics.metric import Direction
from icalib.reports import sweep_charts as charts
from icalib.reports.comparison import (
    COLUMNS,
    MISSING,
    format_seconds,
    format_share,
    format_spread,
    format_value,
    with_outside_metrics,
)
from icalib.reports.page import figure_json, write_page
from icalib.reports.sweep_lead import lead_of, ties_text
from icalib.reports.sweep_trials import (
    GOALS,
    NUM_BEST,
    Line,
    Trial,
    complete,
    lines_by_param,
    metrics_beside,
    param_names,
    param_text,
    pareto_front,
    ranked,
    settings_text,
    short_names,
    sweep_trials,
    varies_one_at_a_time,
    winners_command,
)
from icalib.sweeps.folder import Best, SweepFolder, SweepSettings
from icalib.sweeps.importances import importances
from icalib.sweeps.ties import ties


@final
@dataclass(frozen=True)
class _Figure:
    """A chart and what a screen reader says of it."""

    json: Markup
    label: str


@final
@dataclass(frozen=True)
class _Row:
    """A trial as a table shows it."""

    number: int
    state: str
    params: tuple[str, ...]
    """By column; all in one where trials have different settings."""
    values: tuple[tuple[str, str], ...]
    """Mean and deviation of each metric: those that are tuned, then those beside them."""
    is_on_front: bool
    duration: str
    num_pseudo_pools: str
    pseudo_accuracy: str
    seeds: str
    error: str


@final
@dataclass(frozen=True)
class _Winner:
    """best.json and the settings beside it."""

    number: int
    params: tuple[tuple[str, str], ...]
    metrics: tuple[tuple[str, str, str], ...]
    """Name, validation and test."""
    num_seeds: int
    path: str
    """Of its settings, relative to the page."""
    command: str
    config: str


@final
@dataclass(frozen=True)
class _StageCost:
    """What some stages took, and what their reuse saved."""

    name: str
    num_computed: int
    num_reused: int
    seconds: float
    seconds_saved: float


@final
@dataclass(frozen=True)
class _Cost:
    """What the sweep cost, and what it would have cost without sharing."""

    figure: _Figure
    seconds: float
    """Wall time of all trials."""
    total: _StageCost
    stages: tuple[_StageCost, ...]
    trials: tuple[tuple[Trial, _StageCost], ...]


def write_sweep_report(folder: SweepFolder) -> Path:
    """Write report.html of a sweep, finished or not: one file that needs no network access; returns its path.

    Raises:
        StorageError: the disk is full or can't be written.
    """
    settings, trials = folder.settings, sweep_trials(folder)
    metrics = settings.metrics
    names = short_names(param_names(trials))
    done = complete(trials, metrics)
    front = pareto_front(done, metrics) if len(metrics) > 1 else []
    lines = lines_by_param(done)
    # One setting at a time leaves nothing to say of how settings work together.
    together = not varies_one_at_a_time(done, lines) and len(done) > 1
    beside, tied = metrics_beside(trials, metrics), ties(folder)
    table = _TrialTable(trials, names, settings, {trial.number for trial in front}, beside)
    return write_page(
        "sweep.html.j2",
        folder.path / "report.html",
        title=f"Sweep of {settings.space} on {settings.data.name}",
        facts=_facts(settings),
        command=settings.command,
        states=Counter(trial.state for trial in trials),
        params=table.columns,
        metrics=[(charts.metric_title(metric), GOALS[direction]) for metric, direction in metrics.items()],
        beside=[charts.metric_title(metric) for metric in beside],
        num_done=len(done),
        num_seeds=settings.seeds,
        best=[table.row(trial) for trial in ranked(trials, metrics)[:NUM_BEST]],
        winner=_winner(folder, names),
        lead=lead_of(folder, trials, metrics, tied),
        unchanged=ties_text(tied, trials),
        has_pseudo_labels=any(trial.mean_of("num_pseudo_pools") is not None for trial in trials),
        history=_history(done, metrics, names) if len(done) > 1 else [],
        lines=_line_figures(lines, metrics, names),
        fronts=_pareto(done, front, metrics, names),
        parallel=_parallel(done, metrics, _shared(done, names)) if together else [],
        slices=_slices(done, metrics, names) if together else [],
        importances=_importances(done, metrics, names) if together else None,
        unfinished=[table.row(trial) for trial in trials if trial.state in ("failed", "pruned")],
        cost=_cost(trials) if trials else None,
    )


def _facts(settings: SweepSettings) -> list[tuple[str, str]]:
    goals = ", ".join(f"{charts.metric_title(name)} {GOALS[direction]}" for name, direction in settings.metrics.items())
    limit = ", ".join(f"{split} {number}" for split, number in settings.limit.items())
    facts = {
        "space": settings.space,
        "method": settings.method,
        "data": str(settings.data),
        "labelled": format_share(float(settings.labelled)),
        "backbone": settings.backbone,
        "sampler": settings.sampler,
        "pruner": settings.pruner,
        "seeds": str(settings.seeds),
        "tuned": f"{goals} on validation",
        "at most": limit and f"pools: {limit}",
        "changed": settings_text(settings.settings, {name: name for name in settings.settings}),
    }
    return [(name, fact) for name, fact in facts.items() if fact]


@final
class _TrialTable:
    """Rows of trials: a column per setting, or one for all of them where trials have different settings."""

    def __init__(
        self,
        trials: Sequence[Trial],
        names: Mapping[str, str],
        settings: SweepSettings,
        front: set[int],
        beside: Sequence[str],
    ) -> None:
        self._names, self._settings, self._front = names, settings, front
        self._metrics = (*settings.metrics, *beside)
        self._are_alike = all(trial.params.keys() == names.keys() for trial in trials if trial.params)

    @property
    def columns(self) -> list[str]:
        return list(self._names.values()) if self._are_alike else ["settings"]

    def row(self, trial: Trial) -> _Row:
        pools = trial.mean_of("num_pseudo_pools")
        return _Row(
            number=trial.number,
            state=trial.state,
            params=self._cells(trial),
            values=tuple(_value(trial, metric) for metric in self._metrics),
            is_on_front=trial.number in self._front,
            duration=format_seconds(trial.seconds),
            num_pseudo_pools=MISSING if pools is None else f"{pools:,.0f}",
            pseudo_accuracy=format_share(trial.mean_of("pseudo_accuracy")),
            seeds=f"{sum(row['state'] == 'complete' for row in trial.rows)} of {self._settings.seeds}",
            error=trial.error or "",
        )

    def _cells(self, trial: Trial) -> tuple[str, ...]:
        if self._are_alike:
            return tuple(param_text(trial.params.get(name)) for name in self._names)
        return (settings_text(trial.params, self._names),)


def _value(trial: Trial, metric: str) -> tuple[str, str]:
    deviation = trial.deviation(metric)
    return format_value(trial.mean(metric)), "" if deviation is None else f"±{format_value(deviation)}"


def _winner(folder: SweepFolder, names: Mapping[str, str]) -> _Winner | None:
    best = folder.best()
    if best is None:
        return None
    return _Winner(
        number=best.trial,
        params=tuple((names.get(name, name), param_text(value)) for name, value in best.params.items()),
        metrics=tuple(
            (
                charts.metric_title(metric),
                format_spread(*best.validation.get(metric, (None, None))),
                format_spread(*best.test.get(metric, (None, None))),
            )
            for metric in _shown(best, list(folder.settings.metrics))
        ),
        num_seeds=best.seeds,
        path=best.config,
        command=winners_command(folder, best),
        config=folder.best_config(),
    )


def _shown(best: Best, metrics: Sequence[str]) -> list[str]:
    """What was tuned, then the columns of every comparison."""
    known = {**best.validation, **best.test}
    return [metric for metric in dict.fromkeys((*metrics, *with_outside_metrics(COLUMNS, known))) if metric in known]


def _history(trials: Sequence[Trial], metrics: Mapping[str, Direction], names: Mapping[str, str]) -> list[_Figure]:
    return [
        _figure(charts.history_figure(trials, metric, direction, names), f"{charts.metric_title(metric)} by trial")
        for metric, direction in metrics.items()
    ]


def _line_figures(
    lines: Mapping[str, Sequence[Line]], metrics: Mapping[str, Direction], names: Mapping[str, str]
) -> list[_Figure]:
    return [
        _figure(charts.line_figure(found, metric, names), f"{charts.metric_title(metric)} by {names[name]}")
        for name, found in lines.items()
        for metric in metrics
    ]


def _pareto(
    trials: Sequence[Trial], front: Sequence[Trial], metrics: Mapping[str, Direction], names: Mapping[str, str]
) -> list[_Figure]:
    return [
        _figure(
            charts.pareto_figure(trials, front, (across, up), names),
            f"{charts.metric_title(up)} against {charts.metric_title(across)}",
        )
        for across, up in combinations(metrics if front else (), 2)
    ]


def _shared(trials: Sequence[Trial], names: Mapping[str, str]) -> dict[str, str]:
    """Settings that every trial has."""
    return {name: label for name, label in names.items() if all(name in trial.params for trial in trials)}


def _parallel(trials: Sequence[Trial], metrics: Mapping[str, Direction], names: Mapping[str, str]) -> list[_Figure]:
    if len(names) < 2:
        return []
    return [
        _figure(
            charts.parallel_figure(trials, metric, direction, names), f"{charts.metric_title(metric)} by all settings"
        )
        for metric, direction in metrics.items()
    ]


def _slices(trials: Sequence[Trial], metrics: Mapping[str, Direction], names: Mapping[str, str]) -> list[_Figure]:
    return [
        _figure(charts.slice_figure(trials, name, metric, names), f"{charts.metric_title(metric)} by {names[name]}")
        for metric in metrics
        for name in names
    ]


def _importances(trials: Sequence[Trial], metrics: Mapping[str, Direction], names: Mapping[str, str]) -> _Figure | None:
    found = {
        metric: importances([trial.params for trial in trials], [trial.mean(metric) or 0.0 for trial in trials])
        for metric in metrics
    }
    explained = {metric: fractions for metric, fractions in found.items() if fractions}
    return _figure(charts.importance_figure(explained, names), "Importance of the settings") if explained else None


def _cost(trials: Sequence[Trial]) -> _Cost:
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        for stage in trial.stages:
            stages.setdefault(stage["name"], []).append(stage)
    return _Cost(
        figure=_figure(charts.cost_figure(trials), "Minutes by trial"),
        seconds=sum(trial.seconds for trial in trials),
        total=_stage_cost("all", [stage for found in stages.values() for stage in found]),
        stages=tuple(_stage_cost(name, found) for name, found in stages.items()),
        trials=tuple((trial, _stage_cost(str(trial.number), trial.stages)) for trial in trials),
    )


def _stage_cost(name: str, stages: Sequence[Mapping[str, Any]]) -> _StageCost:
    computed = [stage["seconds"] for stage in stages if not stage["reused"]]
    reused = [stage["seconds"] for stage in stages if stage["reused"]]
    return _StageCost(name, len(computed), len(reused), sum(computed), sum(reused))


def _figure(figure: go.Figure, label: str) -> _Figure:
    return _Figure(figure_json(figure), label)
