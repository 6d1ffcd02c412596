from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.metrics import confusion_matrix
from unit.regimes.made_scores import Pools, intent_table, score_table

from icalib.core.component import validated
from icalib.core.errors import SettingError
from icalib.core.run_tables import PSEUDO_LABEL_SCHEMA, RoundSummary
from icalib.regimes.pseudo_labels import (
    PseudoLabelRule,
    PseudoLabels,
    assign,
    pseudo_label_table,
)
from icalib.regimes.round_tally import RoundTally
from icalib.regimes.thresholds import resolve_rule
from icalib.scoring.gain import ALWAYS_INTENTS, NEVER_INTENTS, ChosenScores, GainRule, choose_views, resolve_gain_rule

PUBLISHED = PseudoLabelRule()
NO_CALIBRATION = PseudoLabelRule(confidence_threshold=1.0)


def tally(shards: Iterable[tuple[ChosenScores, PseudoLabels]], number: int) -> RoundSummary:
    """The summary of a round from all its shards."""
    counts = RoundTally(PUBLISHED)
    for chosen, labels in shards:
        counts.add(chosen, labels)
    return counts.summary(number)


def rule(**settings: Any) -> PseudoLabelRule:
    return PseudoLabelRule.model_validate(settings)


def plain_scores(*pool: tuple[float, float]) -> ChosenScores:
    return choose_views(score_table([pool]), None, GainRule())


def labels(pool: list[tuple[float, float]], given: PseudoLabelRule = PUBLISHED) -> dict[int, int]:
    """Pseudo labels {candidate: label} of the kept candidates of one pool."""
    assigned = assign(plain_scores(*pool), given)
    return {place: int(assigned.label[place]) for place in np.flatnonzero(assigned.keep)}


# Equations 5 and 6: exactly one confident candidate.


def test_one_confident_candidate_keeps_it_and_the_clear_negatives() -> None:
    pool = [(0.9, 0.0), (0.05, 0.0), (0.1, 0.0), (0.5, 0.0), (0.8, 0.0), (0.09, 0.0)]
    assert labels(pool) == {0: 1, 1: 0, 5: 0}  # all comparisons are strict


def test_the_confident_rule_looks_at_no_information() -> None:
    assert labels([(0.9, 0.6), (0.05, 0.6)]) == labels([(0.9, 0.0), (0.05, 0.0)]) == {0: 1, 1: 0}


def test_two_confident_candidates_drop_the_pool() -> None:
    assert labels([(0.9, 0.3), (0.95, 0.0), (0.01, 0.0)]) == {}


# Equations 12 and 14: answer-label calibration of pools without a confident candidate.


def test_no_confident_candidate_but_one_likely_and_one_informative_keeps_the_whole_pool() -> None:
    assert labels([(0.6, 0.3), (0.4, 0.1), (0.05, 0.0), (0.5, 0.2)]) == {0: 1, 1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    "pool",
    [
        [(0.6, 0.1), (0.4, 0.2)],  # no candidate's information is above λʰ
        [(0.6, 0.3), (0.4, 0.25)],  # two are
        [(0.5, 0.3), (0.4, 0.1)],  # no candidate is likely: 0.5 is not above λ̃⁺
        [(0.6, 0.3), (0.7, 0.1)],  # two are
        [(0.2, 0.0), (0.1, 0.0)],
    ],
)
def test_calibration_wants_exactly_one_likely_and_exactly_one_informative_candidate(
    pool: list[tuple[float, float]],
) -> None:
    assert labels(pool) == {}


def test_without_calibration_such_a_pool_is_dropped() -> None:
    assert labels([(0.6, 0.3), (0.4, 0.1)], NO_CALIBRATION) == {}


def test_the_likely_and_the_informative_candidate_may_differ_unless_same_candidate_is_asked() -> None:
    pool = [(0.6, 0.1), (0.4, 0.3), (0.1, 0.0)]
    assert labels(pool) == {0: 1, 1: 0, 2: 0}
    assert labels(pool, rule(same_candidate=True)) == {}
    assert labels([(0.6, 0.3), (0.4, 0.1)], rule(same_candidate=True)) == {0: 1, 1: 0}
    assert labels([(0.6, 0.3), (0.4, 0.3)], rule(same_candidate=True)) == {}  # still exactly one informative


def test_between_the_calibrated_thresholds_a_candidate_is_left_out() -> None:
    gap = rule(calibrated_negative_threshold=0.3, calibrated_positive_threshold=0.6)
    assert labels([(0.7, 0.3), (0.3, 0.0), (0.31, 0.0), (0.6, 0.0)], gap) == {0: 1, 1: 0}


def test_calibrated_labels_of_confident_pools_reach_the_candidates_in_between() -> None:
    pool = [(0.9, 0.0), (0.6, 0.0), (0.4, 0.0), (0.05, 0.0)]
    assert labels(pool) == {0: 1, 3: 0}
    assert labels(pool, rule(calibrate_confident_pools=True)) == {0: 1, 1: 1, 2: 0, 3: 0}


def test_certainty_asks_for_low_information_of_the_likely_candidate() -> None:
    certain = rule(confidence="certainty")
    assert labels([(0.6, 0.1), (0.4, 0.3)], certain) == {0: 1, 1: 0}
    assert labels([(0.6, 0.3), (0.4, 0.1)], certain) == {}
    assert labels([(0.6, 0.1), (0.4, 0.1)], certain) == {0: 1, 1: 0}


def test_pools_are_judged_apart() -> None:
    table = score_table([[(0.9, 0), (0.05, 0)], [(0.9, 0), (0.9, 0)], [(0.6, 0.3), (0.4, 0.1)]])
    chosen = choose_views(table, None, GainRule())
    assigned = assign(chosen, PUBLISHED)
    assert assigned.keep.tolist() == [True, True, False, False, True, True]
    assert assigned.rule.tolist() == ["confident"] * 2 + [""] * 2 + ["calibrated"] * 2


# The gain.


PLAIN: Pools = [[(0.9, 0.10), (0.2, 0.10), (0.3, 0.10)]]
INTENT: Pools = [[(0.7, 0.15), (0.1, 0.12), (0.6, 0.02)]]


def chosen_views(**settings: Any) -> ChosenScores:
    return choose_views(score_table(PLAIN, INTENT), intent_table(1), GainRule.model_validate(settings))


def test_the_intent_view_is_believed_where_it_raises_information_by_more_than_lambda() -> None:
    chosen = chosen_views()
    np.testing.assert_allclose(chosen.gain, [0.05, 0.02, -0.08], atol=1e-12)
    assert chosen.with_intents.tolist()[::2] == [True, False]
    assert chosen.prob.tolist()[::2] == [0.7, 0.3]
    assert chosen.information.tolist()[::2] == [0.15, 0.10]


def test_a_gain_of_exactly_lambda_is_not_enough() -> None:
    chosen = choose_views(score_table([[(0.9, 0.25)]], [[(0.7, 0.5)]]), intent_table(1), GainRule(gain_threshold=0.25))
    assert chosen.with_intents.tolist() == [False]


def test_certainty_turns_the_gain_around() -> None:
    chosen = chosen_views(confidence="certainty")
    np.testing.assert_allclose(chosen.gain, [-0.05, -0.02, 0.08], atol=1e-12)
    assert chosen.with_intents.tolist() == [False, False, True]


def test_no_rule_scales_the_probabilities_of_a_view() -> None:
    with pytest.raises(ValidationError, match="intent_probability"):
        GainRule.model_validate({"intent_probability": "mean"})
    always = chosen_views(gain_threshold=ALWAYS_INTENTS)
    assert list(zip(always.prob, always.information, strict=True)) == INTENT[0]


def test_the_intents_of_a_pool_are_found_by_row() -> None:
    table = score_table(PLAIN * 2, INTENT * 2)
    intents = intent_table(2)
    names = intents.schema.field("intents")
    intents = intents.set_column(2, names, pa.array([[[]], [[0]]], names.type)).take([1, 0])
    assert choose_views(table, intents, GainRule()).has_intents.tolist() == [False] * 3 + [True] * 3


def test_lambda_of_minus_1_always_believes_the_intents_and_1_never() -> None:
    extremes_plain: Pools = [[(0.5, math.log(2)), (0.5, 0.0)]]
    extremes_intent: Pools = [[(0.6, 0.0), (0.6, math.log(2))]]
    table, intents = score_table(extremes_plain, extremes_intent), intent_table(1)
    always = choose_views(table, intents, GainRule(gain_threshold=ALWAYS_INTENTS))
    never = choose_views(table, intents, GainRule(gain_threshold=NEVER_INTENTS))
    assert always.with_intents.all()
    assert always.prob.tolist() == [0.6, 0.6]
    assert not never.with_intents.any()
    assert never.prob.tolist() == [0.5, 0.5]


def test_one_view_has_no_gain() -> None:
    chosen = plain_scores((0.9, 0.1))
    assert np.isnan(chosen.gain).all()
    assert not chosen.with_intents.any()


# Thresholds.


@pytest.mark.parametrize(
    "wrong",
    [
        {"negative_threshold": 0.5},
        {"negative_threshold": 0.6},
        {"calibrated_negative_threshold": 0.55},
        {"positive_threshold": 0.5},
        {"calibrated_positive_threshold": 0.8},
    ],
)
def test_thresholds_out_of_order_are_refused_with_the_order(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺"):
        validated(PseudoLabelRule, wrong)


@pytest.mark.parametrize(
    ("name", "value"), [("positive_threshold", 1.0), ("gain_threshold", -1.1), ("confidence", "x")]
)
def test_values_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=name):
        validated(PseudoLabelRule, {name: value})


# Limit cases: settings under which two methods must agree.

pools_of_two_views = st.lists(
    st.lists(st.tuples(*[st.floats(0, 1), st.floats(0, 0.69)] * 2), min_size=3, max_size=3), min_size=1, max_size=6
)


@given(pools_of_two_views)
def test_limit_icast_with_lambda_and_lambda_h_infinite_is_tsst_on_mc_means(
    pools: list[list[tuple[float, float, float, float]]],
) -> None:
    plain = [[(p, g) for p, g, _, _ in pool] for pool in pools]
    intent = [[(p, g) for _, _, p, g in pool] for pool in pools]
    infinite = rule(gain_threshold=NEVER_INTENTS, confidence_threshold=1.0)
    icast = choose_views(score_table(plain, intent), intent_table(len(pools)), infinite)
    tsst = choose_views(score_table(plain), None, GainRule())
    one, two = (pseudo_label_table(c, assign(c, r)) for c, r in ((icast, infinite), (tsst, NO_CALIBRATION)))
    for name in PSEUDO_LABEL_SCHEMA.names:
        if name != "gain":
            assert one[name].equals(two[name]), name
    expected = [eq_5_and_6(np.array([p for p, _ in pool])) for pool in plain]
    assert assign(tsst, NO_CALIBRATION).keep.tolist() == [kept for pool in expected for kept in pool]


def eq_5_and_6(prob: np.ndarray) -> list[bool]:
    """Kept candidates as the papers write it."""
    confident = prob > 0.8
    return (confident | (prob < 0.1)).tolist() if confident.sum() == 1 else [False] * len(prob)


@given(pools_of_two_views)
def test_limit_lambda_of_minus_1_labels_by_the_intent_view_alone(
    pools: list[list[tuple[float, float, float, float]]],
) -> None:
    plain = [[(p, g) for p, g, _, _ in pool] for pool in pools]
    intent = [[(p, g) for _, _, p, g in pool] for pool in pools]
    always = rule(gain_threshold=ALWAYS_INTENTS)
    icast = assign(choose_views(score_table(plain, intent), intent_table(len(pools)), always), always)
    alone = assign(choose_views(score_table(intent), None, GainRule()), always)
    assert icast.keep.tolist() == alone.keep.tolist()
    assert icast.label.tolist() == alone.label.tolist()


@pytest.mark.parametrize("given_rule", [PUBLISHED, NO_CALIBRATION, rule(calibrate_confident_pools=True)])
def test_limit_a_perfect_teacher_gives_gold(given_rule: PseudoLabelRule) -> None:
    gold = [2, 0, 1]
    perfect = [[(float(candidate == right), 0.0) for candidate in range(4)] for right in gold]
    chosen = choose_views(score_table(perfect, perfect, gold), intent_table(3), given_rule)
    table = pseudo_label_table(chosen, assign(chosen, given_rule))
    assert table.num_rows == 12
    assert table["label"].equals(table["gold"])


def test_limit_a_positive_threshold_nobody_reaches_selects_nothing() -> None:
    high = rule(positive_threshold=0.999999, confidence_threshold=1.0)
    assert labels([(0.99, 0.3), (0.01, 0.0)], high) == {}


@given(pools_of_two_views)
def test_every_kept_pool_has_exactly_one_positive_as_published(
    pools: list[list[tuple[float, float, float, float]]],
) -> None:
    plain = [[(p, g) for p, g, _, _ in pool] for pool in pools]
    chosen = choose_views(score_table(plain), None, GainRule())
    assigned = assign(chosen, PUBLISHED)
    for row in set(chosen.row[assigned.keep]):
        assert assigned.label[(chosen.row == row) & assigned.keep].sum() == 1


# Tables and summaries.


def test_the_table_has_kept_pairs_with_view_rule_and_gold() -> None:
    chosen = choose_views(score_table(PLAIN, INTENT, gold=[0]), intent_table(1), PUBLISHED)
    table = pseudo_label_table(chosen, assign(chosen, PUBLISHED))
    assert table.schema == PSEUDO_LABEL_SCHEMA
    assert table.to_pylist() == []  # 0.7, 0.2, 0.3: nobody is confident, nor informative
    chosen = choose_views(
        score_table([[(0.9, 0.1), (0.05, 0.1)]], [[(0.85, 0.3), (0.5, 0.1)]], [1]), intent_table(1), PUBLISHED
    )
    first, second = pseudo_label_table(chosen, assign(chosen, PUBLISHED)).to_pylist()
    assert (first["candidate"], first["label"], first["gold"], first["view"], first["rule"]) == (
        0,
        1,
        0,
        "intent",
        "confident",
    )
    assert (second["candidate"], second["label"], second["gold"], second["view"]) == (1, 0, 1, "plain")
    assert first["gain"] == pytest.approx(0.2)


def test_a_summary_counts_what_a_round_did_whatever_the_shards() -> None:
    pools: Pools = [
        [(0.9, 0.0), (0.05, 0.0), (0.3, 0.0)],  # confident, right
        [(0.9, 0.0), (0.05, 0.0), (0.01, 0.0)],  # confident, wrong
        [(0.6, 0.3), (0.4, 0.0), (0.1, 0.0)],  # calibrated, right
        [(0.9, 0.0), (0.9, 0.0), (0.1, 0.0)],  # dropped; a tie at the top holds the right one
    ]
    gold = [0, 1, 0, 1]
    shards = [
        (
            chosen := choose_views(score_table([pools[row]], gold=[gold[row]]), None, PUBLISHED),
            assign(chosen, PUBLISHED),
        )
        for row in range(4)
    ]
    whole = choose_views(score_table(pools, gold=gold), None, PUBLISHED)
    summary = tally([(whole, assign(whole, PUBLISHED))], 3)
    assert tally(shards, 3) == summary
    assert (summary.round, summary.num_pools_scored, summary.num_pools_selected, summary.num_pairs_selected) == (
        3,
        4,
        3,
        8,
    )
    assert summary.num_pools_by_rule == {"confident": 2, "calibrated": 1}
    assert summary.share_with_intents == 0.0
    table = pseudo_label_table(whole, assign(whole, PUBLISHED))
    tn, fp, fn, tp = confusion_matrix(table["gold"], table["label"]).ravel().tolist()
    assert summary.confusion == {
        "true_positive": tp, "false_positive": fp, "true_negative": tn, "false_negative": fn,
    }  # fmt: skip
    assert summary.pair_accuracy == pytest.approx((tp + tn) / 8)
    assert summary.pool_accuracy == pytest.approx(2 / 3)
    assert summary.base_accuracy == pytest.approx((1 + 0 + 1 + 0.5) / 4)


def test_without_gold_a_summary_has_no_accuracies() -> None:
    chosen = plain_scores((0.9, 0.0), (0.05, 0.0))
    summary = tally([(chosen, assign(chosen, PUBLISHED))], 1)
    assert (summary.pool_accuracy, summary.pair_accuracy, summary.base_accuracy) == (None, None, None)
    assert summary.confusion == {}


def test_a_round_that_selects_nothing_has_a_summary() -> None:
    chosen = choose_views(score_table([[(0.5, 0.0), (0.5, 0.0)]], gold=[0]), None, PUBLISHED)
    summary = tally([(chosen, assign(chosen, PUBLISHED))], 1)
    assert (summary.num_pools_selected, summary.share_with_intents, summary.pool_accuracy) == (0, 0.0, None)


@pytest.mark.parametrize("size", [0.003, 0.03, 0.69, math.log(2)])
def test_the_gain_histogram_counts_every_pair_near_its_gain(size: float) -> None:
    plain: Pools = [[(0.5, 0.0), (0.5, size), (0.5, 0.1)]]
    intent: Pools = [[(0.5, size), (0.5, 0.0), (0.5, 0.1)]]
    chosen = choose_views(score_table(plain, intent), intent_table(1), PUBLISHED)
    summary = tally([(chosen, assign(chosen, PUBLISHED))], 1)
    edges, counts = np.array(summary.gain_histogram_edges), np.array(summary.gain_histogram_counts)
    assert counts.sum() == 3
    low, middle, high = np.flatnonzero(counts)
    for place, gain in ((low, -size), (middle, 0.0), (high, size)):
        assert edges[place] <= gain <= edges[place + 1]
        assert edges[place + 1] - edges[place] < max(0.0015, 0.2 * size)


# Thresholds as quantiles of what was scored.


def random_shards(seed: int, number: int) -> list[tuple[pa.Table, pa.Table | None]]:
    rng = np.random.default_rng(seed)

    def view() -> Pools:
        return [[(float(rng.beta(1, 4)), float(rng.beta(1, 9))) for _ in range(5)] for _ in range(20)]

    return [(score_table(view(), view()), intent_table(20)) for _ in range(number)]


def test_absolute_thresholds_stay_as_they_are() -> None:
    assert resolve_rule(PUBLISHED, random_shards(0, 2)) == PUBLISHED
    assert resolve_gain_rule(PUBLISHED, []) == PUBLISHED


def test_quantiles_become_the_numbers_that_cut_off_their_share() -> None:
    shards = random_shards(1, 3)
    found = resolve_rule(PseudoLabelRule.quantiles(), shards)
    assert found.scale == "absolute"
    chosen = [choose_views(*shard, found) for shard in shards]
    gain = np.concatenate([scores.gain for scores in chosen])
    assert (gain > found.gain_threshold).mean() == pytest.approx(0.5, abs=0.01)
    best = np.concatenate([scores.prob.reshape(20, 5).max(1) for scores in chosen])
    assert (best > found.positive_threshold).mean() == pytest.approx(0.1, abs=0.02)
    information = np.concatenate([scores.information for scores in chosen])
    assert (information > found.confidence_threshold).mean() == pytest.approx(0.05, abs=0.01)


@given(seed=st.integers(0, 20))
def test_resolved_thresholds_keep_their_order(seed: int) -> None:
    found = resolve_rule(PseudoLabelRule.quantiles(), random_shards(seed, 1))
    thresholds = (
        found.negative_threshold,
        found.calibrated_negative_threshold,
        found.calibrated_positive_threshold,
        found.positive_threshold,
    )
    assert list(thresholds) == sorted(thresholds)


def test_quantiles_of_a_scaled_posterior_select_the_same_pairs() -> None:
    """What makes estimators interchangeable: only the order of figures counts."""
    (scores, intents), *_ = random_shards(2, 1)

    def shrunk(name: str, power: float) -> pa.Table:
        place = scores.schema.get_field_index(name)
        return scores.set_column(place, scores.schema.field(name), pa.array(scores[name].to_numpy() ** power))

    assigned: list[PseudoLabels] = []
    for table in (scores, shrunk("prob_mean", 1.5)):
        resolved = resolve_rule(rule(**PseudoLabelRule.quantiles().model_dump()), [(table, intents)])
        assigned.append(assign(choose_views(table, intents, resolved), resolved))
    assert assigned[0].keep.any()
    np.testing.assert_array_equal(assigned[0].keep, assigned[1].keep)
    np.testing.assert_array_equal(assigned[0].label[assigned[0].keep], assigned[1].label[assigned[1].keep])


def test_without_intents_a_quantile_of_the_gain_means_nothing() -> None:
    plain = score_table([[(0.9, 0.1), (0.1, 0.0)]])
    assert resolve_gain_rule(PseudoLabelRule.quantiles(), [(plain, None)]).gain_threshold == NEVER_INTENTS


def test_a_quantile_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`gain_threshold` is -0\.5.*quantile between 0 and 1"):
        rule(scale="quantile", gain_threshold=-0.5)
