"""Paired tests between methods on the same pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from icalib.core.run_folder import RunFolder
from icalib.metrics.pairs import FloatArray, PoolScores, check_same_pools
from icalib.metrics.ranking import average_precision, recall_at_k
from icalib.metrics.significance import holm, paired_permutation_test


class MethodTest(NamedTuple):
    """Two methods compared in one metric: mean difference first − second over pools, p-value, Holm's p-value."""

    metric: str
    first: str
    second: str
    difference: float
    p_value: float
    p_holm: float


def _brier(scores: PoolScores) -> FloatArray:
    return scores.pool_sum((scores.prob - scores.label) ** 2) / np.diff(scores.offsets)


_PER_POOL: dict[str, Callable[[PoolScores], FloatArray]] = {
    "R@1": lambda scores: recall_at_k(scores, 1),
    "MAP": average_precision,
    "Brier": _brier,
}


def paired_tests(
    runs: Mapping[str, Sequence[RunFolder]], *, against: str | None = None, shift: str | None = None, seed: int = 0
) -> list[MethodTest]:
    """Permutation tests of every pair of methods in R@1, MAP and Brier score over test pools.

    A pool's value is the mean over the method's seeds. Holm's correction is over the pairs within a metric.

    Args:
        against: test only the pairs that this method is in.
        shift: the other pool set on which the runs were evaluated; None takes their own.

    Raises:
        DataError: the runs were not evaluated on the same pools.
    """
    scores = {
        label: [
            PoolScores.from_predictions(run.predictions("test") if shift is None else run.shift_predictions(shift))
            for run in members
        ]
        for label, members in runs.items()
    }
    check_same_pools([one for members in scores.values() for one in members])
    tests: list[MethodTest] = []
    for metric, per_pool in _PER_POOL.items():
        values = {label: np.mean([per_pool(s) for s in members], axis=0) for label, members in scores.items()}
        pairs = [pair for pair in combinations(values, 2) if against is None or against in pair]
        outcomes = [paired_permutation_test(values[a], values[b], seed=seed) for a, b in pairs]
        adjusted = holm([outcome.p_value for outcome in outcomes])
        tests += [
            MethodTest(metric, a, b, outcome.difference, outcome.p_value, p_holm)
            for (a, b), outcome, p_holm in zip(pairs, outcomes, adjusted, strict=True)
        ]
    return tests
