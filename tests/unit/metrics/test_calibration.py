from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icalib.metrics import calibration

PAIRS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0, 1])), min_size=1, max_size=60)


def arrays(pairs: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p for p, _ in pairs]), np.array([y for _, y in pairs])


def adaptive_ece(prob: np.ndarray, label: np.ndarray, num_bins: int = 10) -> float:
    each_a_pool = calibration.SortedPairs.of(prob, label, np.arange(prob.size))
    return float(calibration.adaptive_ece(each_a_pool, np.ones((1, prob.size)), num_bins=num_bins)[0])


@given(PAIRS, st.integers(1, 15))
def test_errors_are_at_least_the_gap(pairs: list[tuple[float, int]], num_bins: int) -> None:
    prob, label = arrays(pairs)
    gap = abs(prob.mean() - label.mean())
    assert gap - 1e-12 <= calibration.ece(prob, label, num_bins=num_bins) <= 1
    assert gap - 1e-12 <= adaptive_ece(prob, label, num_bins=num_bins) <= 1
    assert calibration.ece(prob, label, num_bins=1) == pytest.approx(gap)
    assert adaptive_ece(prob, label, num_bins=1) == pytest.approx(gap)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_tied_pairs_has_no_effect(pairs: list[tuple[float, int]], random: Random) -> None:
    shuffled = random.sample(pairs, len(pairs))
    expected = adaptive_ece(*arrays(pairs))
    assert adaptive_ece(*arrays(shuffled)) == pytest.approx(expected, abs=1e-12)


def test_likelihood_from_logits_is_exact_where_probabilities_saturate() -> None:
    logit, label = np.array([-800.0, 800.0, 0.0]), np.array([1, 1, 0])
    assert calibration.nll_from_logits(logit, label) == pytest.approx((800 + np.log(2)) / 3)
    assert calibration.nll(np.array([0.0]), np.array([1])) == pytest.approx(-np.log(1e-7))


def test_a_probability_at_an_edge_belongs_to_the_bin_above_it_and_1_to_the_last() -> None:
    sums = calibration.bin_sums(np.array([0.0, 0.1, 0.5, 0.9, 1.0]), np.ones(5))
    assert np.flatnonzero(sums.num_pairs).tolist() == [0, 1, 5, 9]
    assert sums.num_pairs[9] == 2


def test_the_reliability_table_holds_each_bin() -> None:
    prob = np.array([0.05, 0.15, 0.15, 1.0])
    rows = calibration.reliability_table(prob, np.array([0, 1, 0, 1])).to_pylist()
    assert len(rows) == 10
    assert [row["n"] for row in rows] == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]
    assert (rows[1]["lo"], rows[1]["hi"]) == (0.1, 0.2)
    assert (rows[1]["conf"], rows[1]["acc"]) == (pytest.approx(0.15), 0.5)
    assert rows[1]["acc_low"] < 0.5 < rows[1]["acc_high"]
    assert np.isnan([rows[2]["conf"], rows[2]["acc"]]).all()
    assert (rows[2]["acc_low"], rows[2]["acc_high"]) == pytest.approx((0, 1), abs=1e-12)


@given(PAIRS)
def test_the_reliability_table_adds_up_to_the_ece(pairs: list[tuple[float, int]]) -> None:
    prob, label = arrays(pairs)
    rows = [row for row in calibration.reliability_table(prob, label).to_pylist() if row["n"]]
    ece = sum(row["n"] * abs(row["conf"] - row["acc"]) for row in rows) / prob.size
    assert calibration.ece(prob, label) == pytest.approx(ece, abs=1e-12)
