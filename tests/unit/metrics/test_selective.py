from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from icalib.core.errors import DataError, SettingError
from icalib.metrics.selective import (
    aurc,
    auroc,
    coverage_at_risk,
    coverage_threshold,
    e_aurc,
    risk_at_coverage,
    risk_coverage,
    selective_risk,
    sorted_errors,
)

POOL = st.tuples(st.sampled_from([0.1, 0.4, 0.5, 0.9]), st.sampled_from([0.0, 0.5, 1.0]))
POOLS = st.lists(POOL, min_size=1, max_size=25)


def arrays(pools: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([c for c, _ in pools]), np.array([e for _, e in pools])


def test_constant_confidence_costs_the_error_rate() -> None:
    error = np.array([1, 0, 0, 1, 0.0])
    assert aurc(np.full(5, 0.3), error) == pytest.approx(0.4)
    assert risk_at_coverage(np.full(5, 0.3), error, 0.8) == pytest.approx(0.4)
    assert auroc(np.full(5, 0.3), error) == pytest.approx(0.5)


def test_the_perfect_order_has_no_excess() -> None:
    error = np.array([0, 0, 0, 1, 1.0])
    confidence = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    assert e_aurc(confidence, error) == 0
    assert aurc(confidence, error) == pytest.approx(sum((i - 3) / i for i in (4, 5)) / 5)
    assert auroc(confidence, error) == 1
    assert auroc(-confidence, error) == 0


def test_the_curve_by_hand() -> None:
    coverage, risk = risk_coverage(np.array([0.9, 0.5, 0.7, 0.7]), np.array([0, 1, 1, 0.0]))
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert risk == pytest.approx([0, 0.25, 1 / 3, 0.5])


@pytest.mark.parametrize(("coverage", "answered"), [(0.8, 28), (0.81, 29), (1.0, 35), (0.0, 1)])
def test_risk_at_a_coverage_takes_just_enough_pools(coverage: float, answered: int) -> None:
    confidence, error = np.arange(35, 0, -1.0), np.arange(35) % 2.0
    assert risk_at_coverage(confidence, error, coverage) == pytest.approx(error[:answered].mean())


def test_the_largest_coverage_within_a_risk() -> None:
    confidence = np.arange(40, 0, -1.0)
    error = np.zeros(40)
    assert coverage_at_risk(confidence, error, 0.05) == 1
    error[[5, 30]] = 1  # 1/20 and 2/40 are within 5 %
    assert coverage_at_risk(confidence, error, 0.05) == 1
    error[39] = 1
    assert coverage_at_risk(confidence, error, 0.05) == 30 / 40
    assert coverage_at_risk(confidence, np.ones(40), 0.05) == 0


@pytest.mark.parametrize(("coverage", "threshold"), [(0.01, 0.9), (0.25, 0.9), (0.26, 0.7), (0.75, 0.7), (1.0, 0.5)])
def test_the_threshold_answers_just_enough_pools(coverage: float, threshold: float) -> None:
    assert coverage_threshold(np.array([0.5, 0.9, 0.7, 0.7]), coverage) == threshold


@given(POOLS, st.floats(0.001, 1))
def test_a_threshold_reaches_the_coverage_and_a_higher_one_does_not(
    pools: list[tuple[float, float]], coverage: float
) -> None:
    confidence, error = arrays(pools)
    found = selective_risk(confidence, error, coverage)
    assert found.coverage == np.mean(confidence >= found.threshold) >= coverage - 1e-9
    assert np.mean(confidence > found.threshold) < coverage
    assert found.risk == pytest.approx(error[confidence >= found.threshold].mean())
    assert 0 <= found.low <= found.risk + 1e-12
    assert found.risk - 1e-12 <= found.high <= 1


def test_tied_pools_are_answered_together_and_the_risk_has_its_wilson_interval() -> None:
    confidence = np.repeat([0.9, 0.6, 0.2], [10, 20, 10])
    error = np.tile([1.0, 0, 0, 0, 0], 8)
    found = selective_risk(confidence, error, 0.5)
    assert (found.threshold, found.coverage, found.risk) == (0.6, 0.75, pytest.approx(0.2))
    expected = stats.binomtest(6, 30).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_threshold_needs_pools_confidences_and_a_coverage() -> None:
    for coverage in (0.0, 1.01, np.nan):
        with pytest.raises(SettingError, match="above 0 and at most 1"):
            coverage_threshold(np.array([0.5]), coverage)
    with pytest.raises(DataError, match="0 pools"):
        coverage_threshold(np.array([]), 0.5)
    with pytest.raises(DataError, match="2 pools, 1 of them without"):
        coverage_threshold(np.array([0.5, np.nan]), 0.5)


def test_without_both_hits_and_errors_there_is_no_auroc() -> None:
    values = auroc(np.tile([0.1, 0.2], (3, 1)), np.array([[0, 0], [1, 1], [1, 0.0]]))
    assert np.isnan(values[:2]).all()
    assert values[2] == 1


@given(POOLS)
def test_excess_is_never_negative_and_order_of_pools_does_not_count(pools: list[tuple[float, float]]) -> None:
    confidence, error = arrays(pools)
    assert e_aurc(confidence, error) >= -1e-12
    assert sorted_errors(confidence, error).sum() == pytest.approx(error.sum())
    assert aurc(confidence[::-1], error[::-1]) == pytest.approx(aurc(confidence, error))


@given(st.lists(st.lists(POOL, min_size=4, max_size=4), min_size=1, max_size=5))
def test_rows_are_independent(rows: list[list[tuple[float, float]]]) -> None:
    confidence, error = (np.stack(part) for part in zip(*map(arrays, rows), strict=True))
    for metric in (aurc, e_aurc, auroc):
        alone = [float(metric(*row)) for row in zip(confidence, error, strict=True)]
        assert metric(confidence, error) == pytest.approx(alone, nan_ok=True)
