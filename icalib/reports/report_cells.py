"""Cells and rows of the tables in a report of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from icalib.calibration.post_hoc import POST_HOC, post_hoc_tag
from icalib.core.run_folder import RunFolder
from icalib.reports.comparison import MethodRow, best_labels, format_value
from icalib.reports.verdict import mean_interval

POST_HOC_METRICS = ("ECE", "NLL")
"""Metrics that are shown after each post-hoc calibrator."""


@final
@dataclass(frozen=True)
class MetricCell:
    """One metric of one method: mean, deviation over seeds and bootstrap interval, as text."""

    mean: str
    deviation: str
    interval: str
    is_best: bool


@final
@dataclass(frozen=True)
class ShiftRow:
    """One method's metrics on pools that it was not trained on."""

    label: str
    num_seeds: int
    cells: tuple[MetricCell, ...]


@final
@dataclass(frozen=True)
class PostHocRow:
    """One method's metrics as they are and after each post-hoc calibrator; the best of each metric is marked."""

    label: str
    cells: Mapping[str, tuple[MetricCell, ...]]


def metric_cell(row: MethodRow, runs: Sequence[RunFolder], metric: str, is_best: bool) -> MetricCell:
    """Return a method's mean of a metric, with its deviation over seeds and its bootstrap interval."""
    interval = mean_interval(runs, metric)
    text = "" if interval is None else f"{format_value(interval.low)}–{format_value(interval.high)}"
    return _cell(row, metric, is_best, text)


def shift_rows(rows: Sequence[MethodRow], columns: Sequence[str]) -> tuple[ShiftRow, ...]:
    """Return the rows of a table about other pools."""
    best = {metric: best_labels(rows, metric) for metric in columns}
    return tuple(
        ShiftRow(row.label, row.num_seeds, tuple(_cell(row, name, row.label in best[name]) for name in columns))
        for row in rows
    )


def post_hoc_rows(rows: Sequence[MethodRow]) -> tuple[PostHocRow, ...]:
    """Return the methods whose runs measured post-hoc calibration; older ones did not."""
    return tuple(
        PostHocRow(row.label, {metric: _post_hoc_cells(row, metric) for metric in POST_HOC_METRICS})
        for row in rows
        if any(row.mean(post_hoc_tag(metric, name)) is not None for metric in POST_HOC_METRICS for name in POST_HOC)
    )


def _post_hoc_cells(row: MethodRow, metric: str) -> tuple[MetricCell, ...]:
    names = (metric, *(post_hoc_tag(metric, calibrator) for calibrator in POST_HOC))
    shown = {name: round(mean, 3) for name in names if (mean := row.mean(name)) is not None}
    lowest = min(shown.values())
    return tuple(_cell(row, name, shown.get(name) == lowest) for name in names)


def _cell(row: MethodRow, metric: str, is_best: bool, interval: str = "") -> MetricCell:
    deviation = row.deviation(metric)
    return MetricCell(
        mean=format_value(row.mean(metric)),
        deviation="" if deviation is None else f"±{format_value(deviation)}",
        interval=interval,
        is_best=is_best,
    )
