"""Paired tests between methods on the same pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import FloatArray, PoolScores, check_same_pools
from icalib.metrics.significance import holm, paired_test
from icalib.reports.comparison import CANDIDATES_ONLY, with_outside_metrics

SIGNIFICANT = 0.05
"""A difference with a smaller p-value is called beyond chance."""
TESTED = ("R@1", "MAP", "Brier")
"""Metrics that are tested, and with them any from outside icalib that has values of single pools."""


class MethodTest(NamedTuple):
    """Two methods compared in one metric: mean difference first − second over pools, p-value, Holm's p-value."""

    metric: str
    first: str
    second: str
    difference: float
    p_value: float
    p_holm: float

    @property
    def outcome(self) -> Literal["better", "worse", "chance"]:
        """Whether the first method is better or worse beyond chance."""
        if self.p_holm >= SIGNIFICANT:
            return "chance"
        lower_is_better = find_metric(self.metric).direction == "minimize"
        return "better" if (self.difference < 0) == lower_is_better else "worse"

    @property
    def turned(self) -> MethodTest:
        """The same from the second method's view."""
        return self._replace(first=self.second, second=self.first, difference=-self.difference)


def paired_tests(
    runs: Mapping[str, Sequence[RunFolder]], *, against: str | None = None, shift: str | None = None
) -> list[MethodTest]:
    """Paired tests of every pair of methods over test pools and seeds, in each of `TESTED`.

    Holm's correction is over the pairs within a metric. With `against`, only pairs that this method is in are tested;
    `candidates-only` says something about pools, so it needs to be named. With `shift`, runs are compared on this other
    pool set. A DataError says that they were not evaluated on the same pools.
    """
    if len(runs) < 2:
        return []
    scores = scores_of(runs, shift)
    pairs = [
        pair
        for pair in combinations(runs, 2)
        if (against in pair if against else not any(label.startswith(CANDIDATES_ONLY) for label in pair))
    ]
    tests: list[MethodTest] = []
    for metric, per_pool in _per_pool(run for members in runs.values() for run in members).items():
        values = {label: np.stack([per_pool(s) for s in members]) for label, members in scores.items()}
        # pools that count in this metric
        defined = ~np.any([np.isnan(value).any(axis=0) for value in values.values()], axis=0)
        if defined.sum() < 2 <= len(defined):  # this metric says nothing here; without two pools, none does
            continue
        values = {label: value[:, defined] for label, value in values.items()}
        outcomes = [paired_test(values[a], values[b], seed=0) for a, b in pairs]
        adjusted = holm([outcome.p_value for outcome in outcomes])
        tests += [
            MethodTest(metric, a, b, outcome.difference, outcome.p_value, p_holm)
            for (a, b), outcome, p_holm in zip(pairs, outcomes, adjusted, strict=True)
        ]
    return tests


def scores_of(runs: Mapping[str, Sequence[RunFolder]], shift: str | None = None) -> dict[str, list[PoolScores]]:
    """Return the scores of runs on test pools, or on those of another pool set; a DataError if these differ."""
    scores = {
        label: [
            PoolScores.from_predictions(run.predictions("test") if shift is None else run.shift_predictions(shift))
            for run in members
        ]
        for label, members in runs.items()
    }
    names = [label for label, members in scores.items() for _ in members]
    check_same_pools([one for members in scores.values() for one in members], names)
    return scores


def values_per_pool(runs: Sequence[RunFolder], metric: str, split: str) -> FloatArray | None:
    """Return a metric's values of the pools of a split that count in it, a row a run; None without values of pools."""
    per_pool = find_metric(metric).per_pool
    if per_pool is None:
        return None
    values = np.stack([per_pool(PoolScores.from_predictions(run.predictions(split))) for run in runs])
    return values[:, ~np.isnan(values).any(axis=0)]


def matrices(tests: Sequence[MethodTest]) -> dict[str, dict[str, dict[str, MethodTest]]]:
    """Return the tests by metric and method, each from both methods' view."""
    found: dict[str, dict[str, dict[str, MethodTest]]] = {}
    for one in [*tests, *(test.turned for test in tests)]:
        found.setdefault(one.metric, {}).setdefault(one.first, {})[one.second] = one
    return found


def _per_pool(runs: Iterable[RunFolder]) -> dict[str, Callable[[PoolScores], FloatArray]]:
    measured = dict.fromkeys(name for run in runs for name in run.result["test"])
    per_pool = {name: find_metric(name).per_pool for name in with_outside_metrics(TESTED, measured)}
    return {name: values for name, values in per_pool.items() if values is not None}
