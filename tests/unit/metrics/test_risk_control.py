from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

from icalib.core.errors import DataError, SettingError
from icalib.metrics.ranking import TopCandidate
from icalib.metrics.risk_control import control_risk


def simulated(num_pools: int, seed: int, *, over_confident: float = 0.0) -> TopCandidate:
    """Best candidates, right with the probability that they have if `over_confident` is 0."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(1.2, 1.5, num_pools)
    hit = rng.random(num_pools) < expit(logit - over_confident)
    return TopCandidate(prob=expit(logit), hit=hit.astype(float))


@cache
def true_risks(over_confident: float) -> tuple[np.ndarray, np.ndarray]:
    """Falling probabilities of many pools, and the fraction of wrong answers down to each."""
    many = simulated(200_000, seed=99, over_confident=over_confident)
    order = np.argsort(-many.prob)
    return many.prob[order], np.cumsum(1 - many.hit[order]) / np.arange(1, len(order) + 1)


def true_risk(threshold: float, *, over_confident: float) -> float:
    prob, risk = true_risks(over_confident)
    return float(risk[np.searchsorted(-prob, -threshold) - 1])


def at_level(prob: list[float], hit: list[float]) -> TopCandidate:
    return TopCandidate(prob=np.array(prob), hit=np.array(hit))


@pytest.mark.parametrize(("wrong", "answered", "max_error"), [(0, 22, 0.1), (3, 80, 0.1), (17, 60, 0.25), (5, 60, 0.2)])
def test_a_threshold_is_kept_where_scipys_binomial_test_rejects(wrong: int, answered: int, max_error: float) -> None:
    p_value = binomtest(wrong, answered, max_error, alternative="less").pvalue
    tested, others = at_level([0.9] * answered, [0] * wrong + [1] * (answered - wrong)), at_level([0.9] * 99, [1] * 99)
    for confidence, is_kept in ((1 - p_value - 1e-9, True), (1 - p_value + 1e-9, False)):
        found = control_risk(tested, others, max_error, confidence)
        assert (found.threshold is not None, found.num_wrong, found.num_answered) == (is_kept, wrong, answered)


@pytest.mark.parametrize("over_confident", [0.0, 1.0])
def test_a_promise_is_broken_at_most_as_often_as_its_confidence_allows(over_confident: float) -> None:
    """Of 200 trials a tenth may break their promise, plus three standard errors; half of them promise something."""
    broken = promised = 0
    for trial in range(200):
        tested, others = (simulated(400, 2 * trial + part, over_confident=over_confident) for part in range(2))
        found = control_risk(tested, others, max_error=0.2, confidence=0.9)
        if found.threshold is not None:
            promised += 1
            broken += true_risk(found.threshold, over_confident=over_confident) > 0.2
    assert promised > 100
    assert broken <= 20 + 3 * np.sqrt(200 * 0.1 * 0.9)


def test_the_number_of_pools_that_is_named_is_enough_in_most_draws() -> None:
    refused = control_risk(simulated(60, 1), simulated(4_000, 2), 0.1)
    assert refused.num_needed is not None
    kept = [
        control_risk(simulated(refused.num_needed, 100 + trial), simulated(4_000, 2), 0.1).threshold is not None
        for trial in range(20)
    ]
    assert 0.6 < np.mean(kept) <= 1


def test_if_the_surest_answers_are_wrong_more_pools_do_not_help() -> None:
    wrong = at_level(np.linspace(0.1, 0.9, 200).tolist(), [0.0, 1.0] * 100)
    refused = control_risk(wrong, wrong, 0.1)
    assert (refused.threshold, refused.num_needed) == (None, None)
    assert "nor can more" in refused.refusal


def test_a_tie_between_right_and_wrong_counts_as_wrong() -> None:
    others = at_level([0.9] * 3, [1.0] * 3)
    found = control_risk(at_level([0.9] * 40, [1.0] * 39 + [0.5]), others, 0.1)
    assert (found.num_wrong, found.num_answered) == (1, 40)


@pytest.mark.parametrize(("max_error", "confidence"), [(0.0, 0.9), (1.0, 0.9), (0.1, 1.0), (float("nan"), 0.9)])
def test_what_is_outside_0_to_1_is_refused(max_error: float, confidence: float) -> None:
    with pytest.raises(SettingError, match="expected a fraction between 0 and 1"):
        control_risk(simulated(5, 1), simulated(5, 2), max_error, confidence)


def test_no_pools_are_refused() -> None:
    with pytest.raises(DataError, match="no promise can be tested on 0 pools"):
        control_risk(at_level([], []), simulated(5, 2), 0.1)
