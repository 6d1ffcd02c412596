from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import kstest
from unit.metrics.made_predictions import pool_scores, ragged_pools

from icalib.core.errors import DataError
from icalib.metrics.adaptive_sets import (
    AdaptiveThreshold,
    _fractions,
    adaptive_sets,
    fit_adaptive,
    fit_slope,
    mass_scores,
)
from icalib.metrics.conformal import answer_sets, fit_conformal
from icalib.metrics.pairs import PoolScores


def simulated(num_pools: int, size: int, seed: int, *, slope: float = 1.0, num_right: int = 1) -> PoolScores:
    """Logits that are the log-likelihood ratio of right and wrong candidates, times a slope."""
    rng = np.random.default_rng(seed)
    label = np.zeros((num_pools, size), np.int64)
    label[:, :num_right] = 1
    logit = slope * 2 * rng.normal(2.0 * label, 1.0)
    return PoolScores.from_lists(logit.tolist(), label.tolist())


def covered(scores: PoolScores, sets: np.ndarray) -> float:
    return float((scores.pool_sum(sets & (scores.label == 1)) > 0).mean())


def coverages(size: int, *, slope: float, trials: int = 40, num_pools: int = 100) -> list[float]:
    """Coverage of 200 pools of a size, with sets for 90 % that pools of 10 have fitted."""
    found: list[float] = []
    for trial in range(trials):
        other, calibration, later = (
            simulated(count, width, 3 * trial + part, slope=slope)
            for part, (count, width) in enumerate(((100, 10), (num_pools, 10), (200, size)))
        )
        threshold = fit_adaptive(calibration, size, 0.9, slope=fit_slope(other), seed=trial)
        within = mass_scores(later, threshold.slope, seed=1_000 + trial) <= threshold.mass
        assert (within <= adaptive_sets(later, threshold, seed=1_000 + trial)).all()
        found.append(covered(later, within))
    return found


@pytest.mark.parametrize("slope", [0.5, 2.0])
@pytest.mark.parametrize("size", [3, 5, 10, 20])
def test_sets_cover_in_pools_of_any_size(size: int, slope: float) -> None:
    """Between 90 % and 1/(n + 1) more, before the best candidate is added to every set."""
    found = coverages(size, slope=slope)
    spread = 4 * np.std(found) / np.sqrt(len(found))
    assert 0.9 - spread <= np.mean(found) <= 0.91 + spread


def test_a_threshold_on_the_share_of_the_softmax_does_not_cover_in_larger_pools() -> None:
    later = simulated(2_000, 20, 7)
    threshold = fit_conformal(simulated(2_000, 10, 8), 0.9)
    assert covered(later, answer_sets(later, threshold)) < 0.85


def test_the_score_of_right_candidates_is_uniform_if_the_softmax_is_calibrated() -> None:
    for size in (3, 10, 30):
        scores = simulated(2_000, size, size)
        of_right = mass_scores(scores, 1.0, seed=5)[scores.label == 1]
        assert kstest(of_right, "uniform").pvalue > 0.01
        unlike = mass_scores(scores, 0.2, seed=5)[scores.label == 1]
        assert kstest(unlike, "uniform").pvalue < 1e-6


@settings(max_examples=60)
@given(ragged_pools(), st.floats(0.2, 3))
def test_scores_are_the_mass_before_and_a_fraction_of_the_own(
    pools: tuple[list[list[float]], list[list[int]]], slope: float
) -> None:
    scores = pool_scores(*pools)
    fraction = _fractions(scores, 3)
    for b, (found, logits) in enumerate(zip(scores.split(mass_scores(scores, slope, seed=3)), pools[0], strict=True)):
        share = softmax(slope * np.array(logits))
        for value, logit in zip(found, logits, strict=True):
            before = share[np.array(logits) > logit].sum()
            own = share[np.array(logits) == logit].sum()
            assert value == pytest.approx(before + fraction[b] * own, abs=1e-9)


@pytest.mark.parametrize("slope", [0.4, 1.0, 3.0])
def test_the_slope_undoes_that_of_the_logits(slope: float) -> None:
    assert fit_slope(simulated(20_000, 6, 1, slope=slope)) * slope == pytest.approx(1, abs=0.05)


def test_pools_without_a_right_candidate_do_not_count() -> None:
    whole = simulated(60, 5, 1)
    label = whole.label.copy()
    label[:100] = 0  # the first 20 pools
    some = PoolScores(whole.pool_ids, whole.logit, whole.prob, label, whole.offsets)
    rest = PoolScores(
        whole.pool_ids[20:], whole.logit[100:], whole.prob[100:], whole.label[100:], whole.offsets[20:] - 100
    )
    assert fit_conformal(some, 0.9) == fit_conformal(rest, 0.9)
    assert fit_slope(some) == pytest.approx(fit_slope(rest), rel=1e-4)
    assert fit_adaptive(some, 5, 0.9, slope=1.0, seed=0).num_pools == 40


def test_pools_without_a_right_candidate_do_not_change_the_coverage_of_the_others() -> None:
    found: list[float] = []
    for trial in range(40):
        calibration, later = (simulated(90, 6, 2 * trial + part) for part in range(2))
        label = calibration.label.copy()
        label[: 30 * 6] = 0
        mixed = PoolScores(calibration.pool_ids, calibration.logit, calibration.prob, label, calibration.offsets)
        found.append(covered(later, answer_sets(later, fit_conformal(mixed, 0.9))))
    spread = 4 * np.std(found) / np.sqrt(len(found))
    assert 0.9 - spread <= np.mean(found) <= 0.9 + 1 / 61 + spread


@pytest.mark.parametrize("size", [6, 8])
def test_sets_hold_all_right_candidates_if_asked(size: int) -> None:
    found: list[tuple[float, float]] = []
    for trial in range(40):
        calibration = simulated(100, 8, 2 * trial, num_right=2)
        later = simulated(200, size, 2 * trial + 1, num_right=2)
        threshold = fit_adaptive(calibration, size, 0.9, slope=1.0, seed=trial, contains="all")
        held = later.pool_sum(adaptive_sets(later, threshold, seed=trial + 500) & (later.label == 1))
        plain = fit_conformal(calibration, 0.9, contains="all") if size == 8 else None
        also = later.pool_sum(answer_sets(later, plain) & (later.label == 1)) if plain else held
        found.append((float((held == 2).mean()), float((also == 2).mean())))
    spread = 4 * np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.mean(found, axis=0) >= 0.9 - spread).all()
    assert (np.mean(found, axis=0) <= 0.92 + spread).all()


def test_fractions_are_uniform_and_depend_on_a_pools_logits_whatever_their_order() -> None:
    scores = simulated(3_000, 5, 9)
    assert kstest(_fractions(scores, 1), "uniform").pvalue > 0.01
    assert not np.isclose(_fractions(scores, 1), _fractions(scores, 2)).any()
    one = [0.5, -0.001, -3.25]
    turned = pool_scores([[9.0, 8.0], one, one[::-1]], [[1, 0], [1, 0, 0], [0, 0, 1]])
    found = _fractions(turned, 1)
    assert found[1] == found[2] == _fractions(pool_scores([one], [[1, 0, 0]]), 1)[0] != found[0]


def test_the_best_candidate_is_always_in_the_set() -> None:
    scores = simulated(50, 4, 1)
    threshold = AdaptiveThreshold(coverage=0.5, mass=0.0, slope=1.0, num_pools=5, num_candidates=4)
    assert (scores.pool_sum(adaptive_sets(scores, threshold, seed=0)) == 1).all()


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(DataError, match=r"5 pools are too few.*at least 9"):
        fit_adaptive(simulated(5, 4, 1), 3, 0.9, slope=1.0, seed=0)
    with pytest.raises(DataError, match="no slope can be fitted on 1 pools"):
        fit_slope(PoolScores.from_lists([[1.0]], [[1]]))
