"""Plotly figures of a sweep's report. Colours that depend on the page's light or dark theme are set by the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Direction
from icalib.reports.charts import NEUTRAL, OKABE_ITO, colour, dash
from icalib.reports.comparison import ARROWS, format_spread
from icalib.reports.sweep_trials import Line, Trial, param_text, settings_text, sort_key
from icalib.sweeps.importances import spans_decades

_BLUE, _VERMILION, _LIGHT_BLUE = OKABE_ITO[0], OKABE_ITO[1], OKABE_ITO[5]
_MOST_TICKS = 8
_LEVEL_LABEL = 18  # characters that find room beside each other above the axes


def history_figure(trials: Sequence[Trial], metric: str, direction: Direction, names: Mapping[str, str]) -> go.Figure:
    """Each complete trial's mean over the seeds by its number, and the best so far.

    Args:
        trials: complete trials by number.
        metric: a validation metric.
        direction: where it should go.
        names: what to call the settings.
    """
    figure = go.Figure()
    numbers, means = [trial.number for trial in trials], [trial.mean(metric) or 0.0 for trial in trials]
    _add_trials(figure, trials, metric, numbers, names)
    best = list(accumulate(means, max if direction == "maximize" else min))
    figure.add_scatter(
        x=numbers,
        y=best,
        name="best so far",
        mode="lines",
        line={"color": _VERMILION, "width": 2.5, "shape": "hv"},
        hovertemplate="best so far %{y:.4f}<extra></extra>",
    )
    figure.update_xaxes(title_text="trial", tickformat="d", dtick=_whole_ticks(trials))
    figure.update_yaxes(title_text=_axis_title(metric))
    figure.update_layout(height=360)
    return figure


def parallel_figure(trials: Sequence[Trial], metric: str, direction: Direction, names: Mapping[str, str]) -> go.Figure:
    """One line per trial through its settings to the metric; `names` are the settings that every trial has."""
    means = [trial.mean(metric) or 0.0 for trial in trials]
    axes = [_axis(label, [trial.params[name] for trial in trials]) for name, label in names.items()]
    axes.append(_axis(metric_title(metric), means))
    low, high = min(means), max(means)
    figure = go.Figure()
    for number, trial in enumerate(trials):
        above = (means[number] - low) / (high - low) if high > low else 1.0
        figure.add_scatter(
            x=list(range(len(axes))),
            y=[axis.heights[number] for axis in axes],
            mode="lines+markers",
            line={"color": _between(1 - above if direction == "minimize" else above), "width": 2},
            marker={"size": 6},
            opacity=0.75,
            text=[_hover(trial, (metric,), names)] * len(axes),
            hovertemplate="%{text}<extra></extra>",
        )
    for index, axis in enumerate(axes):
        figure.add_vline(x=index, line={"color": NEUTRAL, "width": 1})
        for height, text in axis.ticks:
            figure.add_annotation(x=index, y=height, text=text, showarrow=False, xanchor="left", xshift=5, font_size=11)
    slanted = max(map(len, names.values())) > _LEVEL_LABEL
    figure.update_xaxes(
        tickvals=list(range(len(axes))),
        ticktext=[axis.label for axis in axes],
        side="top",
        tickangle=-14 if slanted else 0,
        range=[-0.15, len(axes) - 0.6],
        showgrid=False,
        zeroline=False,
    )
    figure.update_yaxes(visible=False, range=[-0.06, 1.06])
    figure.update_layout(
        height=420, showlegend=False, hovermode="closest", margin={"t": 100 if slanted else 60, "b": 30}
    )
    return figure


def slice_figure(trials: Sequence[Trial], name: str, metric: str, names: Mapping[str, str]) -> go.Figure:
    """Each complete trial's mean over the seeds by its value of one setting."""
    figure = go.Figure()
    shown = [trial for trial in trials if name in trial.params]
    values = [trial.params[name] for trial in shown]
    numeric = _all_numbers(values)
    _add_trials(figure, shown, metric, values if numeric else [param_text(value) for value in values], names)
    if numeric and spans_decades(values):
        figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    elif not numeric:
        figure.update_xaxes(type="category", categoryorder="category ascending")
    else:
        figure.update_xaxes(exponentformat="e")
    figure.update_xaxes(title_text=names[name])
    figure.update_yaxes(title_text=_axis_title(metric))
    figure.update_layout(height=300, showlegend=False)
    return figure


def importance_figure(importances: Mapping[str, Mapping[str, float]], names: Mapping[str, str]) -> go.Figure:
    """Fraction of the metrics' variance over trials that each setting explains; `importances` are by metric."""
    figure = go.Figure()
    first = next(iter(importances.values()))
    rows = sorted(first, key=lambda name: first[name])
    for number, (metric, fractions) in enumerate(importances.items()):
        figure.add_bar(
            y=[names[name] for name in rows],
            x=[fractions.get(name, 0.0) for name in rows],
            name=metric_title(metric),
            orientation="h",
            marker_color=colour(number),
            texttemplate="%{x:.0%}",
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        )
    largest = max(max(fractions.values()) for fractions in importances.values())
    figure.update_xaxes(title_text="fraction of the variance", tickformat=".0%", range=[0, 1.1 * largest])
    figure.update_layout(
        height=150 + 26 * len(rows) * len(importances), showlegend=len(importances) > 1, bargap=0.3, barmode="group"
    )
    return figure


def pareto_figure(
    trials: Sequence[Trial], front: Sequence[Trial], metrics: tuple[str, str], names: Mapping[str, str]
) -> go.Figure:
    """Two metrics against each other; trials of the front in colour with their numbers."""
    figure = go.Figure()
    numbers = {trial.number for trial in front}
    across, up = metrics
    others = [trial for trial in trials if trial.number not in numbers]
    figure.add_scatter(
        x=[trial.mean(across) for trial in others],
        y=[trial.mean(up) for trial in others],
        text=[_hover(trial, metrics, names) for trial in others],
        name="other trials",
        mode="markers",
        marker={"color": NEUTRAL, "size": 8, "opacity": 0.7},
        hovertemplate="%{text}<extra></extra>",
    )
    ordered = sorted(front, key=lambda trial: trial.mean(across) or 0.0)
    figure.add_scatter(
        x=[trial.mean(across) for trial in ordered],
        y=[trial.mean(up) for trial in ordered],
        customdata=[_hover(trial, metrics, names) for trial in ordered],
        text=[str(trial.number) for trial in ordered],
        textposition="top center",
        name="Pareto front",
        mode="lines+markers+text",
        line={"color": _BLUE, "width": 2, "dash": "dot"},
        marker={"size": 11},
        hovertemplate="%{customdata}<extra></extra>",
    )
    figure.update_xaxes(title_text=_axis_title(across))
    figure.update_yaxes(title_text=_axis_title(up))
    figure.update_layout(height=420)
    return figure


def line_figure(lines: Sequence[Line], metric: str, names: Mapping[str, str]) -> go.Figure:
    """A metric over the values of one setting, as in ICAST's Figure 3.

    A line is the mean over the seeds with the standard deviation as error bars. Where there is one line, bars on a
    second axis show how many pairs were learnt with predicted intents in the last round, on average.
    """
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    has_bars = len(lines) == 1 and any(trial.mean_of("num_selected_intents") for trial in lines[0].trials)
    if has_bars:
        _add_intents(figure, lines[0])
    for number, line in enumerate(lines):
        figure.add_scatter(
            x=[param_text(value) for value in line.values],
            y=[trial.mean(metric) for trial in line.trials],
            error_y=_error_bars(line.trials, metric),
            text=[_hover(trial, (metric,), names) for trial in line.trials],
            name=_varied_text(line, lines, names) or metric_title(metric),
            mode="lines+markers",
            line={"color": colour(number), "width": 2.5, "dash": dash(number)},
            marker={"size": 8},
            hovertemplate="%{text}<extra></extra>",
            secondary_y=has_bars,
        )
    values = {param_text(value): value for line in lines for value in line.values}
    order = sorted(values, key=lambda text: sort_key(values[text]))
    figure.update_xaxes(title_text=names[lines[0].name], type="category", categoryorder="array", categoryarray=order)
    # The axis that is drawn last is on top, so the line has the second axis, which is on the left.
    figure.update_yaxes(title_text=_axis_title(metric), side="left", tickmode="auto", secondary_y=has_bars)
    if has_bars:
        figure.update_yaxes(
            title_text="selected intents",
            side="right",
            showgrid=False,
            rangemode="tozero",
            tickformat="~s",
            secondary_y=False,
        )
    figure.update_layout(height=380, bargap=0.45, showlegend=has_bars or len(lines) > 1 or bool(lines[0].others))
    return figure


def cost_figure(trials: Sequence[Trial]) -> go.Figure:
    """Minutes that each trial took, and that its reused stages would have taken."""
    figure = go.Figure()
    parts = {
        "took": ([trial.seconds for trial in trials], _BLUE),
        "saved by reused stages": ([trial.seconds_saved for trial in trials], _LIGHT_BLUE),
    }
    for name, (seconds, shade) in parts.items():
        if not any(seconds):
            continue
        figure.add_bar(
            x=[trial.number for trial in trials],
            y=[one / 60 for one in seconds],
            name=name,
            marker_color=shade,
            opacity=1.0 if shade == _BLUE else 0.5,
            hovertemplate="trial %{x}: %{y:.1f} min " + name + "<extra></extra>",
        )
    figure.update_xaxes(title_text="trial", tickformat="d", dtick=_whole_ticks(trials))
    figure.update_yaxes(title_text="minutes", rangemode="tozero")
    figure.update_layout(height=320, barmode="stack")
    return figure


def _whole_ticks(trials: Sequence[Trial]) -> int:
    """The distance of at most about ten whole ticks; fractions of trials would be rounded to the same number."""
    span = max((trial.number for trial in trials), default=0) - min((trial.number for trial in trials), default=0)
    return max(1, math.ceil(span / 10))


def metric_title(metric: str) -> str:
    """The display name of a metric."""
    return find_metric(metric).title


def _add_trials(
    figure: go.Figure, trials: Sequence[Trial], metric: str, positions: Sequence[Any], names: Mapping[str, str]
) -> None:
    figure.add_scatter(
        x=positions,
        y=[trial.mean(metric) for trial in trials],
        error_y={**_error_bars(trials, metric), "color": NEUTRAL, "thickness": 1},
        text=[_hover(trial, (metric,), names) for trial in trials],
        name="trials",
        mode="markers",
        marker={"color": _BLUE, "size": 8, "opacity": 0.75},
        hovertemplate="%{text}<extra></extra>",
    )


def _add_intents(figure: go.Figure, line: Line) -> None:
    figure.add_bar(
        x=[param_text(value) for value in line.values],
        y=[trial.mean_of("num_selected_intents") for trial in line.trials],
        name="selected intents",
        marker_color=_LIGHT_BLUE,
        opacity=0.45,
        hovertemplate="%{y:,.0f} selected intents<extra></extra>",
        secondary_y=False,
    )


def _error_bars(trials: Sequence[Trial], metric: str) -> dict[str, Any]:
    deviations = [trial.deviation(metric) for trial in trials]
    return {"array": [deviation or 0.0 for deviation in deviations], "visible": any(deviations), "width": 4}


def _hover(trial: Trial, metrics: Sequence[str], names: Mapping[str, str]) -> str:
    values = [
        f"{metric_title(metric)} {format_spread(trial.mean(metric), trial.deviation(metric))}" for metric in metrics
    ]
    settings = [f"{names[name]} = {param_text(value)}" for name, value in trial.params.items()]
    pools = trial.mean_of("num_pseudo_pools")
    selected = [] if pools is None else [f"{pools:,.0f} pools pseudo-labelled"]
    accuracy = trial.mean_of("pseudo_accuracy")
    selected += [] if accuracy is None else [f"{accuracy:.1%} of them right"]
    return "<br>".join([f"trial {trial.number}", *values, *settings, *selected])


@final
@dataclass(frozen=True)
class _Axis:
    """A vertical axis: each trial's height in 0 to 1, and ticks by height."""

    label: str
    heights: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]


def _axis(label: str, values: Sequence[Any]) -> _Axis:
    """An axis: numbers as they are or by their logarithm, anything else by its position in the alphabet."""
    if not _all_numbers(values):
        choices = sorted({param_text(value) for value in values})
        positions = [float(choices.index(param_text(value))) for value in values]
        return _scaled(label, positions, {float(index): choice for index, choice in enumerate(choices)})
    if not spans_decades(values):
        distinct = sorted(set(values))
        few = distinct if len(distinct) <= _MOST_TICKS else np.linspace(distinct[0], distinct[-1], 5).tolist()
        return _scaled(label, values, {value: param_text(value) for value in few})
    exponents = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = {float(exponent): f"{10.0**exponent:g}" for exponent in exponents}
    return _scaled(label, [math.log10(value) for value in values], ticks)


def _scaled(label: str, values: Sequence[float], ticks: Mapping[float, str]) -> _Axis:
    low, high = min(*values, *ticks), max(*values, *ticks)

    def height(value: float) -> float:
        return (value - low) / (high - low) if high > low else 0.5

    return _Axis(label, tuple(map(height, values)), tuple((height(value), text) for value, text in ticks.items()))


def _between(fraction: float) -> str:
    """The colour at a fraction of the way from worse to better; both ends contrast with light and dark pages."""
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (NEUTRAL, _VERMILION)]
    red, green, blue = (round(a + fraction * (b - a)) for a, b in zip(*ends, strict=True))
    return f"rgb({red},{green},{blue})"


def _varied_text(line: Line, lines: Sequence[Line], names: Mapping[str, str]) -> str:
    """A line's settings in which the lines differ from each other; all of its others where it is the only one."""
    varied = {
        name: value
        for name, value in line.others.items()
        if len(lines) == 1 or any(name not in other.others or other.others[name] != value for other in lines)
    }
    return settings_text(varied, names)


def _axis_title(metric: str) -> str:
    return f"{metric_title(metric)}{ARROWS[find_metric(metric).direction]}, validation"


def _all_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
