from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.scored_pools import scored_pools
from scipy.special import expit

from icalib.core.errors import DataError
from icalib.core.seeding import child_seed
from icalib.metrics.calibration import brier, ece, nll
from icalib.metrics.pairs import IntArray
from icalib.score_files.calibrator import METHODS, OF_QUERIES, calibrate

POOLS = scored_pools()


def test_overconfident_scores_become_calibrated_on_queries_that_fitted_nothing() -> None:
    found = calibrate(POOLS)
    before, chosen = found.metrics["none"], found.metrics[found.method]
    assert list(found.metrics) == list(METHODS)
    assert found.method != "none"
    assert chosen["NLL"].value < 0.85 * before["NLL"].value
    assert chosen["ECE"].value < before["ECE"].value / 2
    for metrics in found.metrics.values():
        assert metrics["NLL"].low <= metrics["NLL"].value <= metrics["NLL"].high


def test_metrics_are_those_of_the_measuring_half() -> None:
    pools = POOLS.subset(POOLS.answerable)
    found = calibrate(pools, seed=3)
    half = np.random.default_rng(child_seed(3, "halves")).permutation(np.arange(pools.num_pools) % 2)
    measuring = pools.subset(half == 1)
    assert (found.num_fitted, found.num_measured) == (np.sum(half == 0), np.sum(half == 1))
    probs = found.prob(measuring.logit, measuring.pool)
    for method, prob in (("none", expit(measuring.logit)), (found.method, probs)):
        for name, measure in (("NLL", nll), ("ECE", ece), ("Brier", brier)):
            assert found.metrics[method][name].value == pytest.approx(measure(prob, measuring.label))
    other = np.where(half[pools.pool] == 1, pools.label.reshape(-1, 6)[:, ::-1].ravel(), pools.label)
    again = calibrate(replace(pools, label=other), seed=3)
    assert (again.method, again.map) == (found.method, found.map)
    assert again.metrics != found.metrics


def test_where_each_query_has_one_right_candidate_its_candidates_share_a_probability_of_1() -> None:
    pools = scored_pools(none_right=0.0, levels=2.0)
    found = calibrate(pools)
    assert found.method == OF_QUERIES
    nll_of, top_of = (
        {name: each[metric].value for name, each in found.metrics.items()} for metric in ("NLL", "ECE_top1")
    )
    assert nll_of[OF_QUERIES] < nll_of["platt"] - 0.01
    assert top_of[OF_QUERIES] < top_of["platt"]
    order = np.random.default_rng(1).permutation(len(pools.logit))  # rows of a query may be apart
    prob = found.prob(pools.logit[order], 7 * pools.pool[order])
    assert np.bincount(pools.pool[order], prob) == pytest.approx(1.0)
    assert found.map.apply(pools.logit, pools.sizes())[order] == pytest.approx(prob)


def test_where_some_queries_have_no_right_candidate_a_softmax_leaves_them_what_p_none_says() -> None:
    pools = scored_pools(none_right=0.3, levels=2.0)
    found = calibrate(pools)
    assert found.method == OF_QUERIES
    for metric in ("NLL", "ECE_top1"):
        value = {name: each[metric].value for name, each in found.metrics.items()}
        assert value[OF_QUERIES] < 0.95 * min(value["platt"], value["isotonic"])
    left = 1 - np.bincount(pools.pool, found.prob(pools.logit, pools.pool))
    assert left.mean() == pytest.approx(1 - pools.answerable.mean(), abs=0.05)


def test_a_query_of_one_candidate_has_the_probability_of_a_pair_though_others_may_have_no_right_one() -> None:
    """Its statistics are far from those of longer queries, on which p_none was fitted: it would be 0 or 1."""
    found = calibrate(scored_pools(none_right=0.3, levels=2.0))
    assert found.none_of_these is not None
    alone = np.array([-2.0, 0.0, 2.0])
    expected = found.map.of_pairs.apply(alone)
    assert found.prob(alone, np.arange(3)) == pytest.approx(expected)
    beside = np.array([1.0, 0.5, 0.0])
    together = found.prob(np.append(alone, beside), np.array([0, 1, 2, 3, 3, 3]))
    assert together == pytest.approx(np.append(expected, found.prob(beside, np.zeros(3, int))))


@pytest.mark.parametrize(("num_none", "has_softmax"), [(13, False), (14, True), (386, True), (387, False)])
@pytest.mark.parametrize("seed", range(3))
def test_a_softmax_needs_enough_queries_of_either_kind(num_none: int, has_softmax: bool, seed: int) -> None:
    found = calibrate(replace(POOLS, label=right_in(400 - num_none)), seed=seed)
    assert (OF_QUERIES in found.metrics) is has_softmax
    several = replace(POOLS, label=np.where(POOLS.pool == 0, 1, right_in(400)))
    assert OF_QUERIES not in calibrate(several, seed=seed).metrics


@pytest.mark.parametrize("shift", [0.0, -25.0], ids=["usual", "tiny"])
def test_probabilities_are_calibrated_through_their_logits(shift: float) -> None:
    """Also where all are below 1e-7 and in the right order; a rounded zero is the lowest that was fitted on."""
    logits = POOLS.logit + shift
    found, same = calibrate(replace(POOLS, logit=expit(logits))), calibrate(replace(POOLS, logit=logits))
    assert (found.scale, same.scale) == ("probability", "logit")
    assert found.prob(expit(logits)) == pytest.approx(
        same.prob(logits), abs=1e-3
    )  # in the measuring half some are lower
    assert found.logit_ends[0] == pytest.approx(min(logits.min(), -16), rel=0.1)
    assert found.prob(np.zeros(1)) == found.prob(expit(np.array(found.logit_ends[:1])))
    with pytest.raises(DataError, match=r"found the score .* where probabilities from 0 to 1 were expected"):
        calibrate(POOLS, "probability")


def test_too_few_queries_or_labels_of_one_kind_are_refused() -> None:
    with pytest.raises(DataError, match=r"found 19 queries. Calibration needs at least 20"):
        calibrate(scored_pools(19))
    for label in (0, 1):
        with pytest.raises(DataError, match=f"all 2400 labels are {label}. Expected right and wrong candidates"):
            calibrate(replace(POOLS, label=np.full(len(POOLS.label), label)))
    with pytest.raises(DataError, match=r"found 9 queries with a right candidate among 400. .* at least 10"):
        calibrate(replace(POOLS, label=right_in(9)))


def right_in(num_queries: int) -> IntArray:
    """Labels by which the first candidate of the first queries is right, and no other."""
    label = np.zeros(len(POOLS.label), np.int64)
    label[POOLS.offsets[:num_queries]] = 1
    return label


@pytest.mark.parametrize("seed", range(8))
def test_every_draw_of_the_halves_has_right_candidates_in_both(seed: int) -> None:
    found = calibrate(replace(POOLS, label=right_in(10)), seed=seed)
    assert (found.num_fitted, found.num_measured) == (200, 200)


def test_huge_scores_are_refused() -> None:
    with pytest.raises(DataError, match=r"found a score of magnitude .*e\+300. Expected scores up to 1e\+100"):
        calibrate(replace(POOLS, logit=POOLS.logit * 1e299), "logit")


def test_scores_of_which_low_ones_are_good_are_noticed() -> None:
    pools = scored_pools(none_right=0.0, levels=2.0)
    assert calibrate(pools).notes == ()
    [note] = calibrate(replace(pools, logit=-pools.logit)).notes
    assert note.startswith("right candidates have lower scores than wrong ones in ")
    assert note.endswith("calibrate its negative")
    for value in (1.7, 3.7):  # the mean of equal scores may be rounded up
        assert not calibrate(replace(pools, logit=np.full_like(pools.logit, value))).notes
