from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from unit.metrics.made_predictions import pool_scores, prediction_table, simulated_table

from icalib.core.errors import DataError
from icalib.metrics.pairs import PoolScores, check_same_pools


def replaced(table: pa.Table, column: str, values: list[object]) -> pa.Table:
    index = table.column_names.index(column)
    return table.set_column(index, table.field(column), pa.array(values, table.field(column).type))


def test_pools_may_be_ragged_and_rows_in_any_order() -> None:
    table = prediction_table([[3, 1], [2, 5, 4]], [[1, 0], [0, 0, 1]])
    scores = PoolScores.from_predictions(table.take(pa.array([4, 1, 3, 0, 2])))
    assert scores.pool_ids == ("pool-00000", "pool-00001")
    assert scores.logit.tolist() == [3, 1, 2, 5, 4]
    assert scores.label.tolist() == [1, 0, 0, 0, 1]
    assert scores.offsets.tolist() == [0, 2, 5]
    assert scores.pool.tolist() == [0, 0, 1, 1, 1]
    assert scores.pool_sum(scores.logit).tolist() == [4, 11]


def test_pools_of_unknown_label_are_dropped() -> None:
    scores = pool_scores([[3, 1], [2, 5], [0, 1]], [[1, 0], [-1, -1], [0, 1]])
    assert scores.pool_ids == ("pool-00000", "pool-00002")
    assert scores.logit.tolist() == [3, 1, 0, 1]


def test_a_subset_keeps_everything_about_its_pools() -> None:
    scores = replace(pool_scores([[3, 1], [2, 5, 4], [0]], [[1, 0], [0, 0, 1], [0]]), p_none=np.array([0.1, 0.2, 0.9]))
    found = scores.subset(np.array([False, True, True]))
    assert found.pool_ids == ("pool-00001", "pool-00002")
    assert found.logit.tolist() == [2, 5, 4, 0]
    assert found.prob.tolist() == scores.prob[2:].tolist()
    assert found.label.tolist() == [0, 0, 1, 0]
    assert found.offsets.tolist() == [0, 3, 4]
    assert found.p_none is not None
    assert found.p_none.tolist() == [0.2, 0.9]


@pytest.mark.parametrize(
    ("column", "values", "field", "message"),
    [
        ("label", [-1, -1, -1, -1], "label", "no pool has a known label"),
        ("label", [1, 0, 2, 0], "label", "candidate 0 of pool 'pool-00001' has a label"),
        ("logit", [0.0, 1.0, 2.0, np.nan], "logit", "candidate 1 of pool 'pool-00001' has a NaN score"),
        ("prob", [0.0, 1.0, 0.2, np.nan], "prob", "candidate 1 of pool 'pool-00001' has no probability"),
        ("candidate", [0, 1, 0, 0], "candidate", "candidate 0 of pool 'pool-00001' occurs twice"),
    ],
)
def test_tables_that_cannot_be_measured_are_refused(
    column: str, values: list[object], field: str, message: str
) -> None:
    table = replaced(prediction_table([[1, 0], [2, 1]], [[1, 0], [1, 0]]), column, values)
    with pytest.raises(DataError, match=message) as caught:
        PoolScores.from_predictions(table)
    assert caught.value.field == field


def test_a_missing_column_is_named() -> None:
    table = prediction_table([[1, 0]], [[1, 0]]).drop_columns(["prob"])
    with pytest.raises(DataError, match=r"`prob`.*lack this column"):
        PoolScores.from_predictions(table)


def test_runs_over_other_pools_are_not_compared() -> None:
    three, two = (PoolScores.from_predictions(simulated_table(n, seed=0)) for n in (3, 2))
    check_same_pools([three, three])
    with pytest.raises(DataError, match=r"run 1 and run 3 .* 1 are in one only, e\.g\. 'pool-00002'"):
        check_same_pools([three, three, two])


@pytest.mark.parametrize("labels", [[[1, 0], [1, 0]], [[1, 0], [0, 1, 0]]])
def test_pools_of_equal_ids_with_other_candidates_are_not_compared(labels: list[list[int]]) -> None:
    """The same dialogues, prepared again with other wrong candidates."""
    found = pool_scores([[0.0] * len(pool) for pool in labels], labels)
    first = pool_scores([[2.0, 1.0], [0.0, 1.0]], [[1, 0], [0, 1]])
    with pytest.raises(DataError, match=r"bert and bm25 .* candidates or labels of 1 differ, e\.g\. of 'pool-00001'"):
        check_same_pools([first, found], ["bert", "bm25"])
