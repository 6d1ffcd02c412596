"""The HTML report of a label curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icalib.metrics.catalogue import find_metric
from icalib.reports.charts import NEUTRAL, colour
from icalib.reports.comparison import ARROWS, format_value
from icalib.reports.label_curve import METRICS, NEXT_LABELS, LabelCurve
from icalib.reports.page import figure_json, write_page

_DASHES = ("dash", "dot", "dashdot", "longdash")


def write_label_curve(curve: LabelCurve, out: Path, command: str) -> Path:
    """Write the report; returns `out`."""
    return write_page(
        "label_curve.html.j2",
        out,
        title=f"What labels are worth on {curve.data}",
        split=curve.split,
        command=command,
        columns=[(name, ARROWS[find_metric(name).direction]) for name in METRICS],
        figure_json=figure_json(_figure(curve)),
        verdicts=[curve.verdict(one) for one in curve.curves],
        rows=_rows(curve),
        next_labels=NEXT_LABELS,
    )


def _rows(curve: LabelCurve) -> list[dict[str, Any]]:
    """Rows of the table: one per method and number of labels, then the untrained methods."""
    rows: list[dict[str, Any]] = []
    for one in curve.curves:
        for index, point in enumerate(one.points):
            cells = []
            for metric in METRICS:
                deviation = point.deviation(metric, curve.split)
                cells.append((format_value(point.mean(metric, curve.split)), f"±{deviation:.3f}" if deviation else ""))
            is_last = index == len(one.points) - 1
            worth = [one.worth_of_next(metric, curve.split) if is_last else None for metric in METRICS]
            rows.append(
                {"label": one.label, "num_labels": point.num_labels, "seeds": len(point.runs), "cells": cells}
                | {"worth": worth}
            )
    for run in curve.lines:
        cells = [(format_value(run.result[curve.split].get(metric)), "") for metric in METRICS]
        rows.append({"label": str(run.result["method"]), "num_labels": None, "seeds": 1, "cells": cells, "worth": []})
    return rows


def _figure(curve: LabelCurve) -> go.Figure:
    """One panel per metric over the number of labels (logarithmic); bars are ± sd over the seeds."""
    figure = make_subplots(rows=1, cols=len(METRICS), subplot_titles=METRICS, horizontal_spacing=0.07)
    numbers = [point.num_labels for one in curve.curves for point in one.points]
    for column, metric in enumerate(METRICS, 1):
        for index, one in enumerate(curve.curves):
            x = [point.num_labels for point in one.points]
            means = [point.mean(metric, curve.split) for point in one.points]
            spread = [point.deviation(metric, curve.split) or 0.0 for point in one.points]
            figure.add_scatter(
                x=x,
                y=means,
                error_y={"array": spread, "thickness": 1.2, "width": 3} if any(spread) else None,
                name=one.label,
                legendgroup=one.label,
                showlegend=column == 1,
                mode="lines+markers",
                line={"color": colour(index), "width": 2},
                marker={"size": 7},
                hovertemplate="%{x} labels: %{y:.3f}",
                row=1,
                col=column,
            )
        for index, run in enumerate(curve.lines):
            value, name = run.result[curve.split].get(metric), str(run.result["method"])
            if value is not None:
                figure.add_scatter(
                    x=[min(numbers), max(numbers)],
                    y=[value, value],
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    mode="lines",
                    line={"color": NEUTRAL, "width": 1.5, "dash": _DASHES[index % len(_DASHES)]},
                    hovertemplate=f"{name}: %{{y:.3f}}<extra></extra>",
                    row=1,
                    col=column,
                )
    shown = sorted(set(numbers))
    figure.update_xaxes(type="log", title_text="labelled pools", tickvals=shown, ticktext=[str(n) for n in shown])
    figure.update_layout(height=420, legend={"orientation": "h", "y": -0.25})
    return figure
