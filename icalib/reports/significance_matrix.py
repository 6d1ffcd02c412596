"""Paired tests as matrices: one per metric, a row and a column per method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from icalib.metrics.catalogue import find_metric
from icalib.reports.paired_tests import SIGNIFICANT, MethodTest


@final
@dataclass(frozen=True)
class Cell:
    """The row's method against the column's: mean difference row − column, p by Holm, and what follows."""

    difference: float
    p_value: float
    p_holm: float
    outcome: Literal["better", "worse", "chance"]


@final
@dataclass(frozen=True)
class Matrix:
    """All pairs of methods in one metric; a cell is None where there is no test, as on the diagonal."""

    metric: str
    labels: tuple[str, ...]
    rows: tuple[tuple[Cell | None, ...], ...]


def matrices(tests: Sequence[MethodTest]) -> list[Matrix]:
    """Return one matrix per metric, methods in order of first appearance."""
    return [
        _matrix(metric, [test for test in tests if test.metric == metric])
        for metric in dict.fromkeys(test.metric for test in tests)
    ]


def _matrix(metric: str, tests: Sequence[MethodTest]) -> Matrix:
    labels = tuple(dict.fromkeys(label for test in tests for label in (test.first, test.second)))
    cells = {(test.first, test.second): _cell(test, 1) for test in tests}
    cells |= {(test.second, test.first): _cell(test, -1) for test in tests}
    return Matrix(metric, labels, tuple(tuple(cells.get((row, column)) for column in labels) for row in labels))


def _cell(test: MethodTest, sign: int) -> Cell:
    difference = sign * test.difference
    if test.p_holm >= SIGNIFICANT:
        return Cell(difference, test.p_value, test.p_holm, "chance")
    gain = -difference if find_metric(test.metric).direction == "minimize" else difference
    return Cell(difference, test.p_value, test.p_holm, "better" if gain > 0 else "worse")
