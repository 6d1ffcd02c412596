from __future__ import annotations

import numpy as np
import pytest

from icalib.metrics.catalogue import find_metric
from icalib.metrics.judged import expected_values, infer
from icalib.metrics.pairs import FloatArray, PoolScores


def test_a_judges_expectation_is_the_mean_over_right_candidates() -> None:
    scores = PoolScores.from_lists([[3.0, 1.0, 2.0], [1.0, 1.0]], [[0, 0, 0], [0, 0]])
    prob = np.array([0.5, 0.2, 0.3, 0.9, 0.1])
    assert expected_values(find_metric("R@1"), scores, prob) == pytest.approx([0.5, 0.5])
    assert expected_values(find_metric("MAP"), scores, prob) == pytest.approx([0.5 + 0.2 / 3 + 0.3 / 2, 0.75])


def judged_values(
    rng: np.random.Generator, right: float, noise: float, number: int = 1030
) -> tuple[FloatArray, FloatArray]:
    value = (rng.random(number) < right).astype(float)
    return value, value + noise * rng.standard_normal(number)


@pytest.mark.parametrize(("right", "noise"), [(0.6, 0.6), (0.9, 0.4), (0.9, 0.1), (0.7, 5.0)])
def test_intervals_cover_and_a_good_judge_shortens_them(right: float, noise: float) -> None:
    """Of 30 judged pools, in 1,000 draws (standard error 0.7 %); where judge and people hardly differ, more cover."""
    rng = np.random.default_rng(1)
    draws = (judged_values(rng, right, noise) for _ in range(1000))
    found = [infer(value[:30], judge[:30], judge) for value, judge in draws]
    for estimates in ([one.estimate for one in found], [one.alone for one in found]):
        assert 0.93 <= np.mean([one.low <= right <= one.high for one in estimates]) <= (0.99 if noise > 0.1 else 1)
    length = np.mean([(one.estimate.high - one.estimate.low) / (one.alone.high - one.alone.low) for one in found])
    correlation = np.sqrt(right * (1 - right) / (right * (1 - right) + noise**2))
    assert length < (0.8 if correlation > 0.7 else 1)
    assert np.mean([one.helps for one in found]) == pytest.approx(float(correlation > 0.3), abs=0.25)
    assert np.mean([one.estimate.value for one in found]) == pytest.approx(right, abs=0.015)


def test_a_judge_that_doesnt_help_changes_nothing() -> None:
    value = np.repeat([1.0, 0.0], [30, 10])
    for judge in (np.full(40, 0.1), 1 - value, np.tile([0.2, 0.8], 20)):
        found = infer(value, judge, np.tile(judge, 5))
        assert not found.helps
        assert found.estimate == found.alone
        assert found.worth == 40
        assert 0.59 < found.alone.low < found.alone.value == 0.75 < found.alone.high < 0.87


def test_judged_pools_that_agree_in_everything_leave_doubt() -> None:
    judge = np.repeat([0.9, 0.1], [300, 700])
    same = infer(np.ones(40), judge[:40], judge)
    assert same.estimate.high == pytest.approx(1)
    assert 0.85 < same.estimate.low < 0.95
    perfect = infer(np.tile([1.0, 0.0], 20), np.tile([1.0, 0.0], 20), np.repeat([1.0, 0.0], 500))
    assert perfect.correlation == pytest.approx(1)
    assert perfect.estimate.high - perfect.estimate.low > 0.05


def test_pools_without_a_right_candidate_dont_count() -> None:
    """Their fraction is not known exactly, so the interval is no shorter than that of the others alone."""
    value = np.array([1.0, 0.0, 1.0, 1.0] * 10)
    judge = np.linspace(0, 1, 200)
    with_others = infer(np.concatenate([value, np.full(20, np.nan)]), judge[:60], judge)
    alone = infer(value, judge[:40], judge)
    assert with_others.alone.value == alone.alone.value == 0.75
    length, length_alone = (one.alone.high - one.alone.low for one in (with_others, alone))
    assert length == pytest.approx(length_alone, rel=0.05)


def test_a_sample_that_isnt_random_is_far_from_all() -> None:
    rng = np.random.default_rng(2)
    value, judge = judged_values(rng, 0.7, 0.5)
    uncertain = np.argsort(judge)[:40]
    assert infer(value[uncertain], judge[uncertain], judge).shift > 5
    assert infer(value[:40], judge[:40], judge).shift < 3


def test_a_judge_that_says_the_same_of_all_pools_says_nothing_of_the_sample() -> None:
    """Its deviation may be a rounding error."""
    value = np.random.default_rng(6).random(40)
    for score in (0.1, 0.25, 1 / 3):
        assert infer(value, np.full(40, score), np.full(400, score)).shift == 0
