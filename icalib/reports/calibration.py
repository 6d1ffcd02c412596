"""What calibrating another ranker's scores has brought: a table for terminals, one HTML page, and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from icalib.external.fit import UNCHANGED, Calibration
from icalib.external.measures import METRICS, RANKING, Measured, Row
from icalib.metrics.catalogue import find_metric
from icalib.reports import charts
from icalib.reports.comparison import ARROWS, format_p, format_value
from icalib.reports.console import people_console, titled_table
from icalib.reports.page import figure_json, write_page

COLUMNS = (*METRICS, RANKING)
_BEFORE = "before"


def summary(calibration: Calibration) -> list[str]:
    """Return sentences for people: what was chosen, accepted pairs, answer sets."""
    calibrator = calibration.calibrator
    folds = calibration.fold_nll
    chosen = (
        f"{calibrator.method} has the lowest NLL in cross-validation on the fitting half "
        f"({folds[calibrator.method]:.4f}; before: {folds[UNCHANGED]:.4f}); paired "
        f"permutation test of the NLL on the other half against before: p {_p(calibration.p_value)}"
    )
    if calibrator.method == UNCHANGED:
        chosen = (
            f"no calibrator has a lower NLL in cross-validation than the scores as they are ({folds[UNCHANGED]:.4f}), "
            "so they stay as they are"
        )
    scale = "probabilities" if calibrator.scale == "probability" else "logits: their sigmoid is the probability before"
    return [f"scores are read as {scale}", chosen, calibration.acceptance.verdict, calibration.sets.verdict]


def print_calibration(calibration: Calibration, console: Console | None = None) -> None:
    """Print the table of the report half, then the sentences."""
    console = console or people_console()
    table = titled_table(_heading(calibration), "95 % intervals over pools below; bold: chosen")
    table.add_column("calibrator", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name + ARROWS[find_metric(name).direction], justify="right", no_wrap=True)
    for row in calibration.rows:
        cells = [f"{format_value(row.metrics[name].value)}\n{_interval(row.metrics[name])}" for name in COLUMNS]
        style = "bold" if row.name == calibration.calibrator.method else ""
        table.add_row(_label(row), *cells, style=style)
    console.print(table)
    for sentence in summary(calibration):
        console.print(Text(sentence))


def write_calibration_page(calibration: Calibration, out: Path, title: str, command: str) -> Path:
    """Write the report as one HTML file that needs no network access; returns `out`."""
    return write_page(
        "calibration.html.j2",
        out,
        title=title,
        heading=_heading(calibration),
        command=command,
        columns=[find_metric(name) for name in COLUMNS],
        arrows=ARROWS,
        rows=[_page_row(row, calibration) for row in calibration.rows],
        sentences=summary(calibration),
        before=figure_json(charts.reliability_figure(calibration.before, 1)),
        after=figure_json(charts.reliability_figure(calibration.after, 0)),
        method=calibration.calibrator.method,
    )


def calibration_record(calibration: Calibration) -> dict[str, Any]:
    """Return the report as JSON: metrics with intervals of each calibrator, and the sentences."""
    return {
        "chosen": calibration.calibrator.method,
        "num_pools_fitted": calibration.num_fitted,
        "num_pools_reported": calibration.before.num_pools,
        "calibrators": {
            row.name: {
                **{name: [one.value, one.low, one.high] for name, one in row.metrics.items()},
                "cross_validated_NLL": calibration.fold_nll[row.name],
            }
            for row in calibration.rows
        },
        "summary": summary(calibration),
    }


def _heading(calibration: Calibration) -> str:
    return (
        f"{calibration.before.num_pools} pools that fitted nothing ({calibration.num_fitted} others fitted and chose)"
    )


def _label(row: Row) -> str:
    return _BEFORE if row.name == UNCHANGED else row.name


def _interval(measured: Measured) -> str:
    return f"{format_value(measured.low)}–{format_value(measured.high)}"


def _p(value: float) -> str:
    shown = format_p(value)
    return shown if shown.startswith("<") else f"= {shown}"


def _page_row(row: Row, calibration: Calibration) -> dict[str, Any]:
    return {
        "label": _label(row),
        "is_chosen": row.name == calibration.calibrator.method,
        "cells": [(format_value(row.metrics[name].value), _interval(row.metrics[name])) for name in COLUMNS],
        "fold_nll": format_value(calibration.fold_nll[row.name]),
    }
