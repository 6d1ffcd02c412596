from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.metrics.made_predictions import pool_scores, ragged_pools, simulated_table

from icalib.core.errors import DataError
from icalib.metrics.pairs import PoolScores
from icalib.metrics.sub_pools import sub_pools


@settings(max_examples=60)
@given(ragged_pools(), st.integers(1, 5), st.integers(0, 3))
def test_a_sub_pool_has_all_right_candidates_and_some_wrong_ones(
    pools: tuple[list[list[float]], list[list[int]]], size: int, seed: int
) -> None:
    scores = pool_scores(*pools)
    fitting = [b for b, labels in enumerate(pools[1]) if sum(labels) <= size <= len(labels)]
    if not fitting:
        with pytest.raises(DataError, match=f"has {size} candidates or more"):
            sub_pools(scores, size, seed=seed)
        return
    found = sub_pools(scores, size, seed=seed)
    assert found.pool_ids == tuple(scores.pool_ids[b] for b in fitting)
    assert np.diff(found.offsets).tolist() == [size] * len(fitting)
    for b, logit, label in zip(fitting, found.split(found.logit), found.split(found.label), strict=True):
        assert label.sum() == sum(pools[1][b])
        left = [value for value, is_right in zip(*(part[b] for part in pools), strict=True) if not is_right]
        for value in logit[label == 0]:
            left.remove(value)


def test_every_wrong_candidate_is_drawn_equally_often() -> None:
    scores = PoolScores.from_predictions(simulated_table(1, seed=1, num_candidates=5))
    counts = np.zeros(5)
    for seed in range(2_000):
        counts += np.isin(scores.logit, sub_pools(scores, 3, seed=seed).logit)
    right = scores.label == 1
    assert counts[right] == 2_000
    np.testing.assert_allclose(counts[~right], 1_000, atol=4 * np.sqrt(2_000 / 4))
