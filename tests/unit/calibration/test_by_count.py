from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from unit.metrics.made_predictions import pool_scores

from icalib.calibration.by_count import count_weights, fit_for_count
from icalib.core.errors import DataError
from icalib.metrics.calibration import ece
from icalib.metrics.pairs import PoolScores

CANDIDATES = 10


def simulated(num_pools: int, size: int, seed: int, *, slope: float = 1.0, offset: float = 0.0) -> PoolScores:
    """Logits that are right in pools of ten with one right candidate, changed by a slope and an offset."""
    rng = np.random.default_rng(seed)
    label = np.zeros((num_pools, size), np.int64)
    label[:, 0] = 1
    ratio = 2 * rng.normal(2.0 * label, 1.0) - 2  # ln of the densities' ratio
    logit = slope * (ratio - np.log(CANDIDATES - 1)) + offset
    return PoolScores.from_lists(logit.tolist(), label.tolist())


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (2.0, 1.5), (0.5, -1.0)])
@pytest.mark.parametrize("size", [2, 5, 20, 40])
def test_probabilities_are_calibrated_in_pools_of_half_and_twice_the_candidates(
    size: int, slope: float, offset: float
) -> None:
    validation = simulated(600, CANDIDATES, 1, slope=slope, offset=offset)
    later = simulated(30_000 // size, size, 2, slope=slope, offset=offset)
    prob = fit_for_count(validation, size).apply(later.logit)
    error = ece(prob, later.label)
    of_validation = ece(fit_for_count(validation, CANDIDATES).apply(later.logit), later.label)
    assert error < 0.015
    assert of_validation > 2.5 * error  # the probabilities that were right for ten candidates


def test_the_slope_is_that_of_validation_and_the_offset_the_shift_of_prior_odds() -> None:
    validation = simulated(20_000, CANDIDATES, 3, slope=2.0)
    for size in (2, 5, 20):
        fitted = fit_for_count(validation, size)
        assert fitted.slope == pytest.approx(0.5, rel=0.03)
        assert fitted.offset == pytest.approx(np.log(9) - np.log(size - 1), abs=0.08)


@pytest.mark.parametrize("size", [3, 25])
def test_it_is_a_weighted_logistic_regression(size: int) -> None:
    validation = simulated(20_000, CANDIDATES, 4)
    weight = count_weights(validation, size)
    golden = LogisticRegression(C=1e10, tol=1e-10).fit(validation.logit[:, None], validation.label, weight)
    fitted = fit_for_count(validation, size)
    grid = np.linspace(-6, 6, 9)
    np.testing.assert_allclose(fitted.apply(grid), golden.predict_proba(grid[:, None])[:, 1], atol=2e-3)


def test_wrong_candidates_stand_for_as_many_as_there_would_be() -> None:
    scores = pool_scores([[1.0, 0.0], [3.0, 2.0, 1.0, 0.0]], [[0, 1], [1, 1, 0, 0]])
    assert count_weights(scores, 5).tolist() == [4, 1, 1, 1, 1.5, 1.5]
    assert count_weights(scores, 2).tolist() == [1, 1, 0.5, 0.5, 0.5, 0.5]  # of two, one is wrong


def test_pools_of_validations_size_keep_its_number_of_right_candidates() -> None:
    """The probabilities of a question with as many candidates as in validation must not depend on the route."""
    rng = np.random.default_rng(5)
    label = np.tile([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], (400, 1))
    scores = PoolScores.from_lists((rng.normal(2.0 * label, 1.0)).tolist(), label.tolist())
    assert fit_for_count(scores, 10).apply(scores.logit).mean() == pytest.approx(0.3, abs=0.005)
    assert fit_for_count(scores, 9).apply(scores.logit).mean() > 0.3


def test_pools_without_right_or_wrong_candidates_weigh_nothing() -> None:
    scores = PoolScores.from_lists([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]], [[0, 0], [1, 1], [1, 0]])
    assert count_weights(scores, 3).tolist() == [0, 0, 0, 0, 1, 2]
    only = PoolScores.from_lists([[1.0, 0.0]], [[0, 0]])
    with pytest.raises(DataError, match="no probabilities for 3 candidates can be fitted on 1 pools"):
        fit_for_count(only, 3)


def test_separable_validation_pairs_have_finite_probabilities() -> None:
    scores = PoolScores.from_lists([[5.0, -5.0, -6.0]] * 4, [[1, 0, 0]] * 4)
    prob = fit_for_count(scores, 6).apply(np.array([-5.0, 5.0]))
    assert 0 < prob[0] < 0.1 < 0.6 < prob[1] < 1
