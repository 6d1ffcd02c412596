from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import softmax
from scipy.stats import entropy, ks_2samp
from unit.metrics.made_predictions import pool_scores, ragged_pools, simulated_table

from icalib.metrics.exchangeability import FALSE_ALARM, pool_statistics, shift_test
from icalib.metrics.pairs import PoolScores


def simulated(num_pools: int, seed: int, *, quality: float = 2.5) -> PoolScores:
    rng = np.random.default_rng(seed)
    label = np.zeros((num_pools, 5), np.int64)
    label[:, 0] = 1
    return PoolScores.from_lists(rng.normal(-2 + quality * label, 1.5).tolist(), label.tolist())


def test_false_alarms_are_as_rare_as_stated() -> None:
    """Of 400 tests at rates of 1 % and 10 %: no more than the rate plus three standard errors; some at 10 %."""
    p_values = np.array(
        [shift_test(simulated(30, 2 * trial), simulated(80, 2 * trial + 1)).p_value for trial in range(400)]
    )
    for rate in (FALSE_ALARM, 0.1):
        assert (p_values < rate).mean() <= rate + 3 * np.sqrt(rate * (1 - rate) / 400)
    assert (p_values < 0.1).mean() > 0.01


def test_questions_that_are_harder_are_noticed() -> None:
    found = [shift_test(simulated(60, trial, quality=0.3), simulated(100, 500 + trial)) for trial in range(40)]
    assert np.mean([one.alarms for one in found]) > 0.9
    assert all((one.num_questions, one.num_pools) == (60, 100) for one in found)


def test_the_p_value_is_scipys_with_bonferronis_correction() -> None:
    first, second = (PoolScores.from_predictions(simulated_table(n, seed=n)) for n in (25, 40))
    found = shift_test(first, second)
    left, right = pool_statistics(first), pool_statistics(second)
    each = {name: ks_2samp(left[name], right[name]).pvalue for name in left}
    assert found.p_value == pytest.approx(min(1, 3 * min(each.values())))
    assert each[found.differs_in] == min(each.values())


@settings(max_examples=40)
@given(ragged_pools())
def test_statistics_are_those_of_each_pool(pools: tuple[list[list[float]], list[list[int]]]) -> None:
    kept = [index for index, pool in enumerate(pools[0]) if len(pool) > 1]
    if not kept:
        return
    logits = [pools[0][index] for index in kept]
    found = pool_statistics(pool_scores(logits, [pools[1][index] for index in kept]))
    for b, pool in enumerate(logits):
        low_to_high = sorted(pool)
        assert found["margin"][b] == low_to_high[-1] - low_to_high[-2]
        assert found["entropy"][b] == pytest.approx(entropy(softmax(pool)), abs=1e-9)
        assert found["top probability"][b] == pytest.approx(1 / (1 + np.exp(-max(pool))))
