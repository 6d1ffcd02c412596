from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.metrics.selective import Blocks, RankedPools, accepted_errors, aurc, auroc, risk_coverage


def blocks(confidence: list[float], error: list[float]) -> Blocks:
    return RankedPools.by(np.array(confidence), np.array(error)).blocks()


def test_the_perfect_order() -> None:
    error = [0, 0, 0, 1, 1.0]
    confidence = [0.9, 0.8, 0.7, 0.6, 0.5]
    assert aurc(blocks(confidence, error)) == pytest.approx(sum((i - 3) / i for i in (4, 5)) / 5)
    assert auroc(blocks(confidence, error)) == 1
    assert auroc(blocks(confidence[::-1], error)) == 0


def test_the_curve_by_hand() -> None:
    coverage, risk = risk_coverage(RankedPools.by(np.array([0.9, 0.5, 0.7, 0.7]), np.array([0, 1, 1, 0.0])))
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert risk == pytest.approx([0, 0.25, 1 / 3, 0.5])


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_the_area_is_the_mean_of_the_curve(seed: int, num_pools: int) -> None:
    rng = np.random.default_rng(seed)
    pools = RankedPools.by(rng.integers(0, 9, num_pools) / 9, rng.integers(0, 3, num_pools) / 2)
    assert aurc(pools.blocks()) == pytest.approx(risk_coverage(pools)[1].mean())


def test_without_both_hits_and_errors_there_is_no_auroc() -> None:
    pools = RankedPools.by(np.array([0.1, 0.2, 0.3, 0.1]), np.array([0, 0, 1, 1.0]))
    values = auroc(pools.blocks(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 2.0]])))
    assert np.isnan(values[:2]).all()
    assert values[2] == 1


def test_a_fraction_of_hits_isnt_more_by_rounding() -> None:
    """0.56 · 25 is 14.000000000000002."""
    found = blocks([1 - rank / 40 for rank in range(27)], [0.0] * 14 + [1.0, 1.0] + [0.0] * 11)
    assert accepted_errors(found, 0.56).tolist() == [0.0]
    assert accepted_errors(found, 0.57).tolist() == [1.0]
