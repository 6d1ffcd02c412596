"""What labels are worth: a metric of each method by the number of labelled pools."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from scipy.special import expit, logit

from icalib.core.run_folder import RunFolder
from icalib.metrics.pairs import FloatArray
from icalib.metrics.significance import PairedTest, paired_test
from icalib.reports.comparison import (
    CANDIDATES_ONLY,
    MISSING,
    MethodRow,
    format_difference,
    format_p,
    format_spread,
    format_value,
    heading,
)
from icalib.reports.paired_tests import SIGNIFICANT, values_per_pool

METRICS = ("R@1", "MAP", "NLL")
"""Metrics of a label curve."""
TESTED = "MAP"
"""Metric by which a curve is said to rise: of those with values of single pools, the least noisy."""
NEXT_LABELS = 100


@final
@dataclass(frozen=True)
class CurvePoint:
    """A method with a number of labelled pools: one run per seed."""

    num_labels: int
    runs: tuple[RunFolder, ...]

    def values(self, split: str) -> MethodRow:
        """Its metrics over the seeds."""
        return MethodRow(str(self.num_labels), tuple(run.result for run in self.runs), split)

    def minus(self, other: CurvePoint, split: str) -> PairedTest:
        """Compare the two in `TESTED` over the same pools and the seeds."""
        return paired_test(self._per_pool(split), other._per_pool(split), seed=0)

    def _per_pool(self, split: str) -> FloatArray:
        values = values_per_pool(self.runs, TESTED, split)
        assert values is not None
        return values


@final
@dataclass(frozen=True)
class LabelCurve:
    """Curves of the methods that learn from labels, and lines of those that don't."""

    data: str
    split: str
    curves: Mapping[str, Sequence[CurvePoint]]  # of each trained method, by rising number of labels
    lines: tuple[RunFolder, ...]  # runs of the untrained methods

    @property
    def title(self) -> str:
        """What stands above table and page."""
        return f"What labels are worth on {self.data}"

    @property
    def verdicts(self) -> dict[str, str]:
        """What each method's curve says."""
        return {method: self._verdict(method, points) for method, points in self.curves.items()}

    def _verdict(self, method: str, points: Sequence[CurvePoint]) -> str:
        """Return by how much a curve rises, how far it is above rankers without labels, and what is next."""
        first, last = points[0], points[-1]
        parts = [f"{last.num_labels} labels"]
        if first is not last:
            parts = [f"from {first.num_labels} to {last.num_labels} labels {_tested(last.minus(first, self.split))}"]
        free = [run for run in self.lines if run.result["method"] != CANDIDATES_ONLY]
        if free:
            best = max(free, key=lambda run: run.result[self.split][TESTED])
            outcome = last.minus(CurvePoint(0, (best,)), self.split)
            parts.append(f"against {best.result['method']}, which needs none, {_tested(outcome)}")
        step = last.minus(points[-2], self.split) if len(points) > 1 else None
        if step is not None and step.p_value >= SIGNIFICANT:
            parts.append("the last step is within chance")
        elif step is not None:
            before, now = (point.values(self.split).mean(TESTED) or 0.0 for point in points[-2:])
            worth = next_labels_worth((points[-2].num_labels, before), (last.num_labels, now))
            parts.append(f"the next {NEXT_LABELS} are worth about {format_difference(worth)}")
        return f"{method}: {'; '.join(parts)}."

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows: method, labels, seeds, `METRICS`."""
        rows: list[list[str]] = []
        for method, points in self.curves.items():
            for point in points:
                found = point.values(self.split)
                spreads = [format_spread(found.mean(metric), found.deviation(metric)) for metric in METRICS]
                rows.append([method, str(point.num_labels), str(len(point.runs)), *spreads])
        for run in self.lines:
            values = [format_value(run.result[self.split].get(metric)) for metric in METRICS]
            rows.append([str(run.result["method"]), MISSING, "1", *values])
        return ["method", "labels", "seeds", *map(heading, METRICS)], rows


def next_labels_worth(before: tuple[int, float], now: tuple[int, float]) -> float:
    """Return what `NEXT_LABELS` more add to `TESTED`, whose log-odds rise with each doubling as between two points.

    The value itself would rise beyond 1.

    Example:
        >>> round(next_labels_worth((50, 0.5), (100, 0.6)), 3), round(next_labels_worth((50, 0.75), (100, 0.94)), 3)
        (0.092, 0.048)
    """
    (fewer, lower), (number, value) = before, now
    odds = logit(np.clip([lower, value], 0.001, 0.999))
    doublings = math.log2((number + NEXT_LABELS) / number) / math.log2(number / fewer)
    return float(expit(odds[1] + doublings * (odds[1] - odds[0])) - expit(odds[1]))


def _tested(outcome: PairedTest) -> str:
    p_value = format_p(outcome.p_value)
    return f"{TESTED} {format_difference(outcome.difference)} (p {p_value if '<' in p_value else f'= {p_value}'})"


def label_curve(
    data: str, split: str, runs: Mapping[int, Sequence[RunFolder]], lines: Sequence[RunFolder]
) -> LabelCurve:
    """Group `runs`, by number of labelled pools, by method; `lines` are runs of methods without training."""
    curves: dict[str, list[CurvePoint]] = {}
    for number in sorted(runs):
        for method in dict.fromkeys(str(folder.result["method"]) for folder in runs[number]):
            folders = tuple(folder for folder in runs[number] if folder.result["method"] == method)
            curves.setdefault(method, []).append(CurvePoint(number, folders))
    return LabelCurve(data, split, curves, tuple(lines))


def write_label_curve(curve: LabelCurve, out: Path, command: str) -> Path:
    """Write the report as one self-contained HTML page; returns `out`."""
    from icalib.reports.charts import label_curve_figure
    from icalib.reports.page import figure_json, write_page

    headings, rows = curve.table()
    return write_page(
        "label_curve.html.j2",
        out,
        title=curve.title,
        split=curve.split,
        command=command,
        figure_json=figure_json(label_curve_figure(curve)),
        verdicts=list(curve.verdicts.values()),
        headings=headings,
        rows=rows,
    )
