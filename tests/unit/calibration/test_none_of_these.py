"""p_none against scikit-learn and scipy, and its properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from icalib.calibration.none_of_these import MIN_POOLS, fit_none_of_these, pool_features
from icalib.core.errors import DataError
from icalib.metrics.pairs import FloatArray, IntArray

Pools = list[list[float]]
LOGITS = st.floats(-40, 40, allow_nan=False)
POOLS = st.lists(st.lists(LOGITS, min_size=1, max_size=7), min_size=1, max_size=6)


def flat(pools: Pools) -> tuple[FloatArray, IntArray]:
    return np.concatenate([np.array(pool) for pool in pools]), np.cumsum([0, *map(len, pools)])


def made_pools(num_pools: int, seed: int = 0) -> tuple[FloatArray, IntArray, np.ndarray]:
    """Pools of 3 to 9 candidates, a fifth of them without a right one, which has a higher logit."""
    rng = np.random.default_rng(seed)
    answerable = rng.random(num_pools) > 0.2
    pools = [rng.normal(-2, 1.5, size=rng.integers(3, 10)) for _ in range(num_pools)]
    for pool, has_right in zip(pools, answerable, strict=True):
        pool[0] += 3.0 * has_right
    return *flat([pool.tolist() for pool in pools]), answerable


def test_the_statistics_are_those_of_scipy() -> None:
    pools = [[0.3, 2.0, -1.0, 0.5], [1.0, 1.0], [-3.0]]
    found = pool_features(*flat(pools))
    for row, pool in zip(found, pools, strict=True):
        down = sorted(pool, reverse=True)
        several = len(pool) > 1
        expected = [
            down[0],
            down[0] - down[1] if several else 0,
            np.std(pool),
            np.mean(down[1:]) if several else down[0],
            stats.entropy(softmax(pool)) / np.log(len(pool)) if several else 0,
            logsumexp(pool) - np.log(len(pool)),
        ]
        np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-12)


def test_the_fit_is_the_logistic_regression_of_scikit_learn() -> None:
    logit, offsets, answerable = made_pools(400)
    fitted = fit_none_of_these(logit, offsets, answerable)
    scaler = StandardScaler().fit(features := pool_features(logit, offsets))
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(scaler.transform(features), ~answerable)
    np.testing.assert_allclose(fitted.weights, model.coef_[0], atol=2e-4)
    np.testing.assert_allclose(
        fitted.p_none(logit, offsets), model.predict_proba(scaler.transform(features))[:, 1], atol=1e-5
    )


@given(POOLS, st.randoms(use_true_random=False))
def test_the_order_of_candidates_and_of_pools_changes_nothing(pools: Pools, random: object) -> None:
    fitted = fit_none_of_these(*made_pools(60))
    found = fitted.p_none(*flat(pools))
    assert ((found >= 0) & (found <= 1)).all()
    shuffled = [sorted(pool) for pool in reversed(pools)]
    np.testing.assert_allclose(fitted.p_none(*flat(shuffled))[::-1], found, rtol=1e-9, atol=1e-12)


def test_statistics_that_are_the_same_for_all_pools_are_no_problem() -> None:
    pools = [[1.0, 1.0, 1.0]] * 20
    answerable = np.arange(20) % 4 > 0
    fitted = fit_none_of_these(*flat(pools), answerable)
    np.testing.assert_allclose(fitted.p_none(*flat(pools)), 0.25, atol=1e-6)


@pytest.mark.parametrize(("num_answerable", "num_unanswerable"), [(MIN_POOLS - 1, 20), (20, MIN_POOLS - 1), (20, 0)])
def test_too_few_pools_of_a_kind_are_refused(num_answerable: int, num_unanswerable: int) -> None:
    answerable = np.arange(num_answerable + num_unanswerable) < num_answerable
    with pytest.raises(DataError, match=f"{num_answerable} pools with a right candidate and {num_unanswerable} with"):
        fit_none_of_these(*flat([[1.0, 2.0]] * len(answerable)), answerable)
