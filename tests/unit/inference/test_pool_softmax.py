from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from icalib.inference.pool_softmax import pool_softmax


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), min_size=1, max_size=8))
def test_each_pool_has_its_softmax(pools: list[list[float]]) -> None:
    prob = pool_softmax(np.concatenate(pools), np.array([len(pool) for pool in pools]))
    np.testing.assert_allclose(prob, np.concatenate([softmax(pool) for pool in pools]), rtol=1e-12, atol=1e-300)


def test_a_lone_candidate_is_certain() -> None:
    assert pool_softmax(np.array([-800.0, 3.0]), np.array([1, 1])).tolist() == [1, 1]
