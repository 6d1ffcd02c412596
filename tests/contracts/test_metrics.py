"""What every metric must do; a new one, of icalib or of a package outside of it, is discovered."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers.discovery import metrics
from scipy.special import expit

from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Evaluation, Metric
from icalib.metrics.pairs import PoolScores

THRESHOLD = 0.3
NUM_POOLS, NUM_CANDIDATES = 40, 8


@pytest.fixture(params=metrics())
def metric(request: pytest.FixtureRequest) -> Metric:
    return find_metric(request.param)


@dataclass
class Pools:
    """One row for each pool, one column for each candidate."""

    logits: np.ndarray
    labels: np.ndarray
    probs: np.ndarray

    def take(self, pools: np.ndarray) -> Pools:
        return Pools(self.logits[pools], self.labels[pools], self.probs[pools])

    def shuffle_candidates(self, rng: np.random.Generator) -> Pools:
        order = rng.permuted(np.tile(np.arange(self.logits.shape[1]), (len(self.logits), 1)), axis=1)
        return Pools(*(np.take_along_axis(values, order, 1) for values in (self.logits, self.labels, self.probs)))

    def evaluation(self) -> Evaluation:
        lists = (values.tolist() for values in (self.logits, self.labels, self.probs))
        scores = PoolScores.from_lists(*lists)
        if not self.labels.any(axis=1).all():
            scores = replace(scores, p_none=1 - self.probs.max(axis=1))
        return Evaluation(scores, THRESHOLD)


@pytest.fixture
def pools(metric: Metric) -> Pools:
    """Pools of a fair model: rounded logits, which tie candidates for the ranking; unrounded probabilities.

    For metrics that apply to such pools only, a quarter of them have no right candidate.
    """
    rng = np.random.default_rng(7)
    labels = np.zeros((NUM_POOLS, NUM_CANDIDATES), int)
    labels[np.arange(NUM_POOLS), rng.integers(NUM_CANDIDATES, size=NUM_POOLS)] = 1
    if metric.applies is not None:
        labels[::4] = 0
    logits = rng.normal(-2 + 2.5 * labels, 1.5)
    return Pools(logits.round(), labels, expit(logits))


def test_the_order_of_pools_changes_nothing(metric: Metric, pools: Pools) -> None:
    shuffled = pools.take(np.random.default_rng(0).permutation(NUM_POOLS))
    assert metric.value(shuffled.evaluation()) == pytest.approx(metric.value(pools.evaluation()), abs=1e-12)


def test_the_order_of_candidates_changes_nothing_even_where_they_tie(metric: Metric, pools: Pools) -> None:
    shuffled = pools.shuffle_candidates(np.random.default_rng(0))
    assert metric.value(shuffled.evaluation()) == pytest.approx(metric.value(pools.evaluation()), abs=1e-12)


def test_no_scores_are_better_than_perfect_ones(metric: Metric, pools: Pools) -> None:
    if metric.direction is None:
        pytest.skip("neither direction is better")
    perfect = Pools(40.0 * pools.labels - 20, pools.labels, pools.labels.astype(float))
    best = metric.value(perfect.evaluation())
    if np.isnan(best):
        pytest.skip("undefined without an error")
    assert metric.sign * best > metric.sign * metric.value(pools.evaluation())


def test_a_resample_has_the_value_of_its_pools(metric: Metric, pools: Pools) -> None:
    drawn = np.random.default_rng(3).integers(NUM_POOLS, size=(5, NUM_POOLS))
    expected = [metric.value(pools.take(sample).evaluation()) for sample in drawn]
    assert metric.of(pools.evaluation().samples(drawn)) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_mean_over_pools_of_one_size_is_the_value(metric: Metric, pools: Pools) -> None:
    if metric.per_pool is None:
        pytest.skip("has no values of single pools")
    evaluation = pools.evaluation()
    if metric.applies is not None and not metric.applies(evaluation.scores):
        pytest.skip("says nothing about such pools")
    values = metric.per_pool(evaluation.scores)
    assert values.shape == (NUM_POOLS,)
    assert values.mean() == pytest.approx(metric.value(evaluation))
