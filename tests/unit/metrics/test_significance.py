from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from icalib.core.errors import DataError
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Evaluation
from icalib.metrics.pairs import PoolScores
from icalib.metrics.significance import (
    gap_interval,
    holm,
    mean_interval,
    mean_variance,
    paired_permutation_test,
    paired_test,
    percentile_interval,
)
from icalib.metrics.summary import measure


def test_undefined_resamples_do_not_count() -> None:
    some = np.array([np.nan, 1.0, 1.0, np.nan])
    assert percentile_interval(some) == (1, 1)
    assert gap_interval(some, 1.5, bounds=(0, 5)) == pytest.approx((3.5**0.5, 2))
    assert np.isnan(percentile_interval(np.full(3, np.nan))).all()
    assert np.isnan(gap_interval(np.zeros(0), 0.5, bounds=(0, 1))).all()


@pytest.mark.parametrize("number", [10, 30, 100])
@pytest.mark.parametrize("fraction", [0.3, 0.66, 0.88, 0.96])
def test_intervals_of_fractions_cover_with_few_pools(number: int, fraction: float) -> None:
    """Percentiles of resamples cover in 34 % with 10 pools and a fraction of 0.96, in 89 % with 100 and 0.88."""
    hits = np.arange(number + 1)
    low, high = np.transpose([mean_interval((np.arange(number) < hit).astype(float)) for hit in hits])
    covered = (low <= fraction) & (fraction <= high)
    assert binom.pmf(hits, number, fraction)[covered].sum() > 0.93


def test_a_mean_of_equal_values_has_a_variance_of_one_more_of_each() -> None:
    assert mean_variance(np.ones(9), 1.0) == pytest.approx(1 / 90)  # (0² + 1²) / (9 + 1) / 9
    assert mean_variance(np.full(4, 0.5), 0.5) == pytest.approx((0.5**2 + 0.5**2) / 5 / 4)


def test_pools_that_do_not_count_leave_the_interval_of_the_others() -> None:
    values = np.repeat([1.0, 0.0, np.nan], [30, 10, 40])
    low, high = mean_interval(values)
    others = mean_interval(values[:40])
    assert (low, high) == pytest.approx(others, abs=0.02)
    assert np.isnan(mean_interval(np.full(3, np.nan))).all()
    assert mean_interval(np.ones(1)) == pytest.approx((0, 1), abs=0.2)


def test_an_interval_of_gaps_mirrors_the_percentiles_within_the_range() -> None:
    values = np.linspace(0.1, 0.5, 1001)
    assert percentile_interval(values) == pytest.approx((0.11, 0.49))
    assert gap_interval(values, 0.4, bounds=(0, 1)) == pytest.approx(((0.32 - 0.49**2) ** 0.5, 0.69))
    assert gap_interval(values, 0.3, bounds=(0, 1)) == pytest.approx((0, 0.49))  # 0.18 − 0.49² is below 0
    assert gap_interval(values, 0.4, bounds=(0, 0.5)) == pytest.approx(((0.32 - 0.49**2) ** 0.5, 0.5))


def test_intervals_of_calibration_errors_contain_that_of_a_calibrated_ranker() -> None:
    """Basic intervals of the error itself are above it in about a third of the draws."""
    rng, above, names = np.random.default_rng(0), np.zeros(3), ("ECE", "ECE_adaptive", "ECE_top1")
    metrics = {name: find_metric(name) for name in names}
    for number in range(40):
        logits = rng.normal(scale=3, size=(100, 10))
        probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (rng.uniform(size=(100, 1)) < probs.cumsum(axis=1)).cumsum(axis=1) == 1
        scores = PoolScores.from_lists(logits.tolist(), labels.astype(int).tolist(), probs.tolist())
        found = measure(Evaluation(scores), metrics, seed=number, num_bootstrap=200)
        above += [found[name][1].low > 0 for name in names]
    assert above.max() <= 3


def test_few_pools_are_tested_exactly() -> None:
    first, second = np.array([1, 1, 0, 1, 1.0]), np.array([0, 0.5, 0.2, 0, 0.9])
    difference = first - second
    flipped = [abs(np.mean(difference * signs)) for signs in product((1, -1), repeat=5)]
    expected = np.mean(np.array(flipped) >= abs(difference.mean()) - 1e-12)
    result = paired_permutation_test(first, second, seed=0)
    assert result.p_value == pytest.approx(expected)
    assert result.difference == pytest.approx(difference.mean())


def test_equal_runs_do_not_differ_and_better_ones_do() -> None:
    rng = np.random.default_rng(0)
    hits = rng.integers(2, size=400).astype(float)
    assert paired_permutation_test(hits, hits, seed=0).p_value == 1
    better = np.where(rng.uniform(size=400) < 0.2, 1, hits)
    result = paired_permutation_test(better, hits, seed=0)
    assert result.p_value == pytest.approx(2 / 10_000)
    assert result == paired_permutation_test(better, hits, seed=0)


@pytest.mark.parametrize(("first", "second"), [(3, 2), (1, 1), (0, 0)])
def test_a_paired_test_needs_pairs(first: int, second: int) -> None:
    with pytest.raises(DataError, match=f"{first} pools and the second of {second}"):
        paired_permutation_test(np.zeros(first), np.zeros(second), seed=0)


def test_seeds_that_vary_are_not_taken_for_a_difference_of_methods() -> None:
    """Two equal methods whose seeds differ by 0.05: pools alone reject far too often."""
    rng, rejected, found = np.random.default_rng(0), np.zeros(2), 0
    for number in range(40):
        difficulty = rng.normal(1.3, 2, size=200)
        ability = rng.normal([[[0]], [[0]], [[2.5]]], 0.4, size=(3, 3, 1))
        first, second, better = (difficulty + ability + rng.logistic(size=(3, 3, 200)) > 0).astype(float)
        alone = paired_permutation_test(first.mean(axis=0), second.mean(axis=0), seed=number, num_permutations=499)
        rejected += [alone.p_value < 0.05, paired_test(first, second, seed=number).p_value < 0.05]
        found += paired_test(better, second, seed=number).p_value < 0.05
    assert rejected[0] > 5  # of 2 that are allowed
    assert rejected[1] <= 4
    assert found > 36


def test_one_seed_is_tested_over_pools_alone() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.uniform(size=(2, 1, 50))
    assert paired_test(first, second, seed=0) == paired_permutation_test(first[0], second[0], seed=0)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
