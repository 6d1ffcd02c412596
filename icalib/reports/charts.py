"""Plotly figures of a report. Colours that depend on the page's light or dark theme are set by the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icalib.metrics.calibration import reliability_table
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.selective import RankedPools, risk_coverage
from icalib.reports.label_curve import METRICS, LabelCurve

# Okabe and Ito's palette without black and yellow, which vanish on dark and light pages.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
NEUTRAL = "#8a8f98"
_DASHES = ("solid", "dot", "dash", "dashdot")
_COVERAGE = np.linspace(0.02, 1.0, 99)


def line_style(index: int, width: float = 2.5) -> dict[str, Any]:
    """Return the colour of the method or line at an index, and dashes, which distinguish equal colours."""
    dash = _DASHES[index // len(OKABE_ITO) % len(_DASHES)]
    return {"color": OKABE_ITO[index % len(OKABE_ITO)], "width": width, "dash": dash}


def seeds_line(index: int, means: Sequence[float | None], deviations: Sequence[float | None]) -> dict[str, Any]:
    """Return means over the seeds as a line with dots, with bars for their standard deviations."""
    bars = {"array": [deviation or 0.0 for deviation in deviations], "thickness": 1.3, "width": 3}
    return {
        "y": means,
        "error_y": bars if any(deviations) else None,
        "mode": "lines+markers",
        "line": line_style(index),
        "marker": {"size": 8},
    }


def reliability_figure(scores: PoolScores, index: int) -> go.Figure:
    """Fraction of right pairs against mean probability in ten bins, with Wilson intervals."""
    figure = go.Figure()
    used = [one for one in reliability_table(scores.prob, scores.label).to_pylist() if one["n"]]
    diagonal = {"color": NEUTRAL, "width": 1, "dash": "dash"}
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line=diagonal, hoverinfo="skip")
    figure.add_scatter(
        x=[one["conf"] for one in used],
        y=[one["acc"] for one in used],
        error_y={
            "array": [one["acc_high"] - one["acc"] for one in used],
            "arrayminus": [one["acc"] - one["acc_low"] for one in used],
            "thickness": 1.4,
            "width": 3,
        },
        customdata=[one["n"] for one in used],
        hovertemplate="probability %{x:.3f}<br>right %{y:.3f}<br>%{customdata:,} pairs<extra></extra>",
        mode="lines+markers",
        line=line_style(index, 1.5) | {"dash": "solid"},
        marker={"size": 8},
    )
    figure.update_xaxes(range=[-0.02, 1.02], dtick=0.25, title_text="probability")
    figure.update_yaxes(range=[-0.02, 1.02], dtick=0.25, title_text="fraction right")
    figure.update_layout(height=340, showlegend=False)
    return figure


def risk_coverage_figure(scores: Mapping[str, Sequence[PoolScores]]) -> go.Figure:
    """Error rate of the most confident fraction of pools, mean over seeds, one line per method."""
    figure = go.Figure()
    for index, (label, members) in enumerate(scores.items()):
        figure.add_scatter(
            x=_COVERAGE,
            y=np.mean([_risk_at(one) for one in members], axis=0),
            name=label,
            mode="lines",
            line=line_style(index),
            hovertemplate="%{x:.0%} answered: %{y:.1%} wrong",
        )
    figure.update_xaxes(title_text="coverage: fraction of pools answered", range=[0, 1.005], tickformat=".0%")
    figure.update_yaxes(title_text="risk: fraction of these wrong", rangemode="tozero", tickformat=".0%")
    figure.update_layout(height=420, hovermode="x unified")
    return figure


def _risk_at(scores: PoolScores) -> FloatArray:
    top = top_candidate(scores)
    return np.interp(_COVERAGE, *risk_coverage(RankedPools.by(top.prob, 1 - top.hit)))


def label_curve_figure(curve: LabelCurve) -> go.Figure:
    """One panel per metric over the number of labels (logarithmic); bars are ± sd over the seeds."""
    figure = make_subplots(rows=1, cols=len(METRICS), subplot_titles=METRICS, horizontal_spacing=0.07)
    numbers = sorted({point.num_labels for points in curve.curves.values() for point in points})
    ends = (numbers[0], numbers[-1]) if len(numbers) > 1 else (numbers[0] / 2, numbers[0] * 2)  # one has no length
    for column, metric in enumerate(METRICS, 1):
        place = {"row": 1, "col": column, "showlegend": column == 1}
        for index, (method, points) in enumerate(curve.curves.items()):
            rows = [point.values(curve.split) for point in points]
            figure.add_scatter(
                **seeds_line(index, [row.mean(metric) for row in rows], [row.deviation(metric) for row in rows]),
                x=[point.num_labels for point in points],
                name=method,
                legendgroup=method,
                hovertemplate="%{x} labels: %{y:.3f}",
                **place,
            )
        for index, run in enumerate(curve.lines):
            value, name = run.result[curve.split].get(metric), str(run.result["method"])
            if value is not None:
                figure.add_scatter(
                    x=list(ends),
                    y=[value, value],
                    name=name,
                    legendgroup=name,
                    mode="lines",
                    line={"color": NEUTRAL, "width": 1.5, "dash": ("dash", "dot", "dashdot", "longdash")[index % 4]},
                    hovertemplate=f"{name}: %{{y:.3f}}<extra></extra>",
                    **place,
                )
    figure.update_xaxes(type="log", title_text="labelled pools", tickvals=numbers, ticktext=list(map(str, numbers)))
    figure.update_layout(height=420, legend={"orientation": "h", "y": -0.25})
    return figure
