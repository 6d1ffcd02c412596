"""What labels are worth: a metric of each method by the number of labelled pools."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import FloatArray, PoolScores
from icalib.metrics.significance import paired_permutation_test
from icalib.reports.comparison import CANDIDATES_ONLY
from icalib.reports.curve_verdict import CurveFacts, CurveStep, FreeBaseline, curve_verdict

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

    def values(self, metric: str, split: str) -> list[float]:
        """The metric of each run."""
        return [float(run.result[split][metric]) for run in self.runs]

    def mean(self, metric: str, split: str) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.values(metric, split))

    def deviation(self, metric: str, split: str) -> float | None:
        """Sample standard deviation over the seeds; None below two."""
        values = self.values(metric, split)
        return statistics.stdev(values) if len(values) > 1 else None

    def per_pool(self, split: str) -> FloatArray:
        """`TESTED` of each pool for which it is defined, mean over the seeds."""
        per_pool = find_metric(TESTED).per_pool
        assert per_pool is not None
        values = [per_pool(PoolScores.from_predictions(run.predictions(split))) for run in self.runs]
        mean = np.mean(values, axis=0)
        return mean[~np.isnan(mean)]  # pools without a right candidate don't count


@final
@dataclass(frozen=True)
class MethodCurve:
    """The points of one method, by rising number of labels."""

    label: str
    points: tuple[CurvePoint, ...]

    def rise(self, split: str) -> CurveStep | None:
        """Compare the ends of the curve; None with one point."""
        if len(self.points) < 2:
            return None
        few, many = self.points[0], self.points[-1]
        outcome = paired_permutation_test(many.per_pool(split), few.per_pool(split), seed=0)
        return CurveStep(few.num_labels, many.num_labels, outcome.difference, outcome.p_value)

    def worth_of_next(self, metric: str, split: str) -> float | None:
        """Expected change by `NEXT_LABELS` more labels, if the last step's gain per doubling continues."""
        if len(self.points) < 2:
            return None
        (before, last) = list(pairwise(self.points))[-1]
        gain = last.mean(metric, split) - before.mean(metric, split)
        doublings = math.log2(last.num_labels / before.num_labels)
        return gain / doublings * math.log2((last.num_labels + NEXT_LABELS) / last.num_labels)


@final
@dataclass(frozen=True)
class LabelCurve:
    """Curves of the methods that learn from labels, and lines of those that don't.

    Args:
        data: name of the pool set.
        split: pools that the metrics are of.
        curves: one per trained method.
        lines: runs of the untrained methods.
    """

    data: str
    split: str
    curves: tuple[MethodCurve, ...]
    lines: tuple[RunFolder, ...]

    def verdict(self, curve: MethodCurve) -> str:
        """What a curve says about labels and self-training, for people."""
        worth = curve.worth_of_next(TESTED, self.split)
        return curve_verdict(
            CurveFacts(
                label=curve.label,
                metric=TESTED,
                rise=curve.rise(self.split),
                worth_of_next=None if worth is None else (NEXT_LABELS, worth),
                against_free=self._against_free(curve),
            )
        )

    def _against_free(self, curve: MethodCurve) -> FreeBaseline | None:
        """Compare the curve's last point with the best untrained method that reads contexts."""
        free = [run for run in self.lines if run.result["method"] != CANDIDATES_ONLY]
        if not free:
            return None
        best = max(free, key=lambda run: run.result[self.split][TESTED])
        baseline, last = CurvePoint(0, (best,)), curve.points[-1]
        outcome = paired_permutation_test(last.per_pool(self.split), baseline.per_pool(self.split), seed=0)
        return FreeBaseline(str(best.result["method"]), last.num_labels, outcome.difference, outcome.p_value)


def label_curve(data: str, split: str, runs: Mapping[int | None, Sequence[RunFolder]]) -> LabelCurve:
    """Group finished runs.

    Args:
        data: name of the pool set.
        split: pools that the metrics are of.
        runs: by number of labelled pools; None for methods without training.
    """
    grouped: dict[str, dict[int, list[RunFolder]]] = {}
    for number, folders in runs.items():
        if number is not None:
            for folder in folders:
                grouped.setdefault(str(folder.result["method"]), {}).setdefault(number, []).append(folder)
    curves = (
        MethodCurve(method, tuple(CurvePoint(number, tuple(points[number])) for number in sorted(points)))
        for method, points in grouped.items()
    )
    return LabelCurve(data, split, tuple(curves), tuple(runs.get(None, ())))
