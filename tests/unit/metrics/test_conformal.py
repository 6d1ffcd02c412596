from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from unit.metrics.made_predictions import pool_scores, ragged_pools, simulated_table

from icalib.core.errors import DataError, SettingError
from icalib.metrics.conformal import ConformalThreshold, answer_sets, fit_conformal
from icalib.metrics.pairs import PoolScores


def simulated(num_pools: int, seed: int) -> PoolScores:
    return PoolScores.from_predictions(simulated_table(num_pools, seed=seed))


def covered(scores: PoolScores, threshold: ConformalThreshold) -> float:
    return float((scores.pool_sum(answer_sets(scores, threshold) & (scores.label == 1)) > 0).mean())


def test_sets_hold_the_right_candidate_as_often_as_promised() -> None:
    """Over many splits the mean coverage lies in [1 − α, 1 − α + 1/(n + 1)], ties and the best candidate aside."""
    num_pools, coverage = 60, 0.9
    found = [
        covered(simulated(200, 2 * seed + 1), fit_conformal(simulated(num_pools, 2 * seed), coverage))
        for seed in range(60)
    ]
    spread = 4 * np.std(found) / np.sqrt(len(found))
    assert coverage - spread <= np.mean(found) <= coverage + 1 / (num_pools + 1) + spread


@pytest.mark.parametrize(
    ("num_pools", "coverage"), [(9, 0.9), (24, 0.56), (19, 0.95), (37, 0.8), (99, 0.99), (50, 0.5)]
)
def test_the_threshold_leaves_out_as_many_right_candidates_as_it_may(num_pools: int, coverage: float) -> None:
    scores = simulated(num_pools, seed=3)
    threshold = fit_conformal(scores, coverage)
    of_right = [1 - softmax(scores.logit[10 * b : 10 * b + 10])[scores.label[10 * b : 10 * b + 10] == 1][0]
                for b in range(num_pools)]  # fmt: skip
    place = next(k for k in range(1, num_pools + 1) if k / (num_pools + 1) >= coverage - 1e-12)
    assert threshold.nonconformity == pytest.approx(sorted(of_right)[place - 1])
    assert threshold.num_pools == num_pools


def test_of_several_right_candidates_the_likeliest_counts() -> None:
    scores = pool_scores([[2.0, 0.0, -1.0]], [[1, 1, 0]])
    assert fit_conformal(scores, 0.5).nonconformity == pytest.approx(1 - softmax([2.0, 0.0, -1.0])[0])


@settings(max_examples=40)
@given(ragged_pools(), st.floats(0, 1))
def test_no_set_is_empty_and_sets_grow_with_the_threshold(
    pools: tuple[list[list[float]], list[list[int]]], level: float
) -> None:
    scores = pool_scores(*pools)
    narrow, wide = (
        answer_sets(scores, ConformalThreshold(coverage=0.5, nonconformity=limit, num_pools=5))
        for limit in (0.0, level)
    )
    assert (scores.pool_sum(narrow) >= 1).all()
    assert (narrow <= wide).all()
    everything = ConformalThreshold(coverage=0.5, nonconformity=1.0, num_pools=5)
    assert answer_sets(scores, everything).all()


@pytest.mark.parametrize(("num_pools", "coverage", "needed"), [(8, 0.9, 9), (18, 0.95, 19), (3, 0.8, 4)])
def test_too_few_pools_are_refused_with_the_number_needed(num_pools: int, coverage: float, needed: int) -> None:
    with pytest.raises(DataError, match=f"{num_pools} pools are too few.*Score at least {needed} pools"):
        fit_conformal(simulated(num_pools, seed=1), coverage)
    assert fit_conformal(simulated(needed, seed=1), coverage).num_pools == needed


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_coverage_outside_0_to_1_is_refused(coverage: float) -> None:
    with pytest.raises(SettingError, match="expected a fraction between 0 and 1"):
        fit_conformal(simulated(5, seed=1), coverage)


def test_sets_are_fitted_to_the_pools_with_a_right_candidate() -> None:
    scores = simulated(90, seed=0)
    mixed = replace(scores, label=np.where(scores.pool < 30, 0, scores.label))
    assert fit_conformal(mixed, 0.9) == fit_conformal(scores.subset(np.arange(90) >= 30), 0.9)
