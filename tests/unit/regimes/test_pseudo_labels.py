from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    resolve_rule,
    scores_for_rule,
)
from icalib.regimes.round_tally import ShardTally, round_summary
from icalib.scoring.gain import ALWAYS_INTENTS, NEVER_INTENTS, ChosenScores, GainRule, choose_views, resolve_gain_rule

PUBLISHED = PseudoLabelRule()
NO_CALIBRATION = PseudoLabelRule(confidence_threshold=1.0)


def tally(shards: Iterable[tuple[ChosenScores, PseudoLabels]], number: int) -> RoundSummary:
    """The summary of a round from all its shards."""
    return round_summary([ShardTally.of(chosen, labels) for chosen, labels in shards], PUBLISHED, number)


def rule(**settings: Any) -> PseudoLabelRule:
    return PseudoLabelRule.model_validate(settings)


def plain_scores(*pool: tuple[float, float]) -> ChosenScores:
    return choose_views(score_table([pool]), None, GainRule())


def labels(pool: list[tuple[float, float]], given: PseudoLabelRule = PUBLISHED) -> dict[int, int]:
    """Pseudo labels {candidate: label} of the kept candidates of one pool."""
    assigned = assign(plain_scores(*pool), given)
    return {place: int(assigned.label[place]) for place in np.flatnonzero(assigned.keep)}


CERTAIN = rule(confidence="certainty")
SAME = rule(same_candidate=True)
GAP = rule(calibrated_negative_threshold=0.3, calibrated_positive_threshold=0.6)
REACHING = rule(calibrate_confident_pools=True)


@pytest.mark.parametrize(
    ("pool", "given", "expected"),
    [
        # Equations 5 and 6: exactly one confident candidate, whatever the information; all comparisons are strict.
        ([(0.9, 0), (0.05, 0), (0.1, 0), (0.5, 0), (0.8, 0), (0.09, 0)], PUBLISHED, {0: 1, 1: 0, 5: 0}),
        ([(0.9, 0.6), (0.05, 0.6)], PUBLISHED, {0: 1, 1: 0}),
        ([(0.9, 0.3), (0.95, 0), (0.01, 0)], PUBLISHED, {}),
        # Equations 12 and 14: without a confident one, exactly one likely and exactly one informative candidate.
        ([(0.6, 0.3), (0.4, 0.1), (0.05, 0), (0.5, 0.2)], PUBLISHED, {0: 1, 1: 0, 2: 0, 3: 0}),
        ([(0.6, 0.1), (0.4, 0.2)], PUBLISHED, {}),  # no candidate's information is above λʰ
        ([(0.6, 0.3), (0.4, 0.25)], PUBLISHED, {}),  # two are
        ([(0.5, 0.3), (0.4, 0.1)], PUBLISHED, {}),  # no candidate is likely: 0.5 is not above λ̃⁺
        ([(0.6, 0.3), (0.7, 0.1)], PUBLISHED, {}),  # two are
        ([(0.6, 0.3), (0.4, 0.1)], NO_CALIBRATION, {}),
        ([(0.99, 0.3), (0.01, 0)], rule(positive_threshold=0.999, confidence_threshold=1.0), {}),
        # The likely and the informative candidate may differ, unless `same_candidate` is asked.
        ([(0.6, 0.1), (0.4, 0.3), (0.1, 0)], PUBLISHED, {0: 1, 1: 0, 2: 0}),
        ([(0.6, 0.1), (0.4, 0.3), (0.1, 0)], SAME, {}),
        ([(0.6, 0.3), (0.4, 0.1)], SAME, {0: 1, 1: 0}),
        ([(0.6, 0.3), (0.4, 0.3)], SAME, {}),  # still exactly one informative
        # Between the calibrated thresholds a candidate is left out.
        ([(0.7, 0.3), (0.3, 0), (0.31, 0), (0.6, 0)], GAP, {0: 1, 1: 0}),
        # Calibrated labels may reach the candidates of confident pools that are in between.
        ([(0.9, 0), (0.6, 0), (0.4, 0), (0.05, 0)], PUBLISHED, {0: 1, 3: 0}),
        ([(0.9, 0), (0.6, 0), (0.4, 0), (0.05, 0)], REACHING, {0: 1, 1: 1, 2: 0, 3: 0}),
        # Certainty asks for low information of the likely candidate.
        ([(0.6, 0.1), (0.4, 0.3)], CERTAIN, {0: 1, 1: 0}),
        ([(0.6, 0.3), (0.4, 0.1)], CERTAIN, {}),
        ([(0.6, 0.1), (0.4, 0.1)], CERTAIN, {0: 1, 1: 0}),
    ],
)
def test_a_pool_is_labelled_by_the_published_rule_and_its_variants(
    pool: list[tuple[float, float]], given: PseudoLabelRule, expected: dict[int, int]
) -> None:
    assert labels(pool, given) == expected


# The gain.


PLAIN: Pools = [[(0.9, 0.10), (0.2, 0.10), (0.3, 0.10)]]
INTENT: Pools = [[(0.7, 0.15), (0.1, 0.12), (0.6, 0.02)]]


@pytest.mark.parametrize(
    ("settings", "believed"),
    [
        ({"gain_threshold": 0.01}, [True, True, False]),
        ({"gain_threshold": 0.03}, [True, False, False]),
        ({"confidence": "certainty", "gain_threshold": 0.02}, [False, False, True]),
        ({"gain_threshold": ALWAYS_INTENTS}, [True, True, True]),
        ({"gain_threshold": NEVER_INTENTS}, [False, False, False]),
    ],
)
def test_the_intent_view_is_believed_where_it_raises_information_by_more_than_lambda(
    settings: dict[str, Any], believed: list[bool]
) -> None:
    chosen = choose_views(score_table(PLAIN, INTENT), intent_table(1), GainRule.model_validate(settings))
    sign = -1 if settings.get("confidence") == "certainty" else 1
    np.testing.assert_allclose(chosen.gain, [sign * gain for gain in (0.05, 0.02, -0.08)], atol=1e-12)
    assert chosen.reads_intents.tolist() == believed
    expected = [pair[intent] for *pair, intent in zip(PLAIN[0], INTENT[0], believed, strict=True)]
    assert list(zip(chosen.prob, chosen.information, strict=True)) == expected


def test_a_pool_has_intents_if_one_of_its_utterances_has_any() -> None:
    pools: Pools = [[(0.5, 0.1)]] * 3
    intents = pa.table({**intent_table(3).to_pydict(), "intents": [[[], [0]], [[], []], [[0], [1, 2]]]})
    chosen = choose_views(score_table(pools, pools), intents, GainRule())
    assert chosen.has_intents.tolist() == [True, False, True]


def test_a_gain_of_exactly_lambda_is_not_enough_and_one_view_has_none() -> None:
    exact = GainRule(gain_threshold=0.25)
    chosen = choose_views(score_table([[(0.9, 0.25)]], [[(0.7, 0.5)]]), intent_table(1), exact)
    assert chosen.reads_intents.tolist() == [False]
    alone = plain_scores((0.9, 0.1))
    assert np.isnan(alone.gain).all()
    assert not alone.reads_intents.any()
    half = GainRule(scale="quantile", gain_threshold=0.5)
    quantiles = resolve_gain_rule(half, [(score_table([[(0.9, 0.1), (0.1, 0.0)]]), None)])
    assert quantiles.gain_threshold == NEVER_INTENTS


@pytest.mark.parametrize("threshold", [ALWAYS_INTENTS, NEVER_INTENTS])
def test_always_and_never_are_the_same_on_every_scale(threshold: float) -> None:
    resolved = resolve_gain_rule(
        GainRule(scale="quantile", gain_threshold=threshold), [(score_table(PLAIN, INTENT), intent_table(1))]
    )
    assert resolved.gain_threshold == threshold


# Thresholds.


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"calibrated_negative_threshold": 0.55}, "λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺"),
        ({"positive_threshold": 0.5}, "λ⁻ < λ̃⁻ ≤ λ̃⁺ < λ⁺"),
        ({"positive_threshold": 1.0}, "positive_threshold"),
        ({"gain_threshold": -1.1}, "gain_threshold"),
    ],
)
def test_thresholds_out_of_order_or_range_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        validated(PseudoLabelRule, wrong)


# Limit cases: settings under which two methods must agree.

pools_of_two_views = st.lists(
    st.lists(st.tuples(*[st.floats(0, 1), st.floats(0, 0.69)] * 2), min_size=3, max_size=3), min_size=1, max_size=6
)


@given(pools_of_two_views)
def test_limit_icast_with_lambda_and_lambda_h_infinite_is_tsst_and_with_lambda_minus_1_the_intent_view_alone(
    pools: list[list[tuple[float, float, float, float]]],
) -> None:
    plain = [[(p, g) for p, g, _, _ in pool] for pool in pools]
    intent = [[(p, g) for _, _, p, g in pool] for pool in pools]
    never = rule(gain_threshold=NEVER_INTENTS, confidence_threshold=1.0)
    always = rule(gain_threshold=ALWAYS_INTENTS)
    for setting, alone, same in ((never, plain, NO_CALIBRATION), (always, intent, always)):
        both_views = choose_views(score_table(plain, intent), intent_table(len(pools)), setting)
        one_view = choose_views(score_table(alone), None, GainRule())
        one, two = (pseudo_label_table(c, assign(c, r)) for c, r in ((both_views, setting), (one_view, same)))
        for name in set(PSEUDO_LABEL_SCHEMA.names) - {"gain", "view"}:
            assert one[name].equals(two[name]), name
    tsst = choose_views(score_table(plain), None, GainRule())
    expected = [eq_5_and_6(np.array([p for p, _ in pool])) for pool in plain]
    assert assign(tsst, NO_CALIBRATION).keep.tolist() == [kept for pool in expected for kept in pool]


def eq_5_and_6(prob: np.ndarray) -> list[bool]:
    """Kept candidates as the papers write it."""
    confident = prob > 0.8
    return (confident | (prob < 0.1)).tolist() if confident.sum() == 1 else [False] * len(prob)


@pytest.mark.parametrize("given_rule", [PUBLISHED, NO_CALIBRATION, rule(calibrate_confident_pools=True)])
def test_limit_a_perfect_teacher_gives_gold(given_rule: PseudoLabelRule) -> None:
    gold = [2, 0, 1]
    perfect = [[(float(candidate == right), 0.0) for candidate in range(4)] for right in gold]
    chosen = choose_views(score_table(perfect, perfect, gold), intent_table(3), given_rule)
    table = pseudo_label_table(chosen, assign(chosen, given_rule))
    assert table.num_rows == 12
    assert table["label"].equals(table["gold"])


# Tables and summaries.


def test_a_summary_counts_what_a_round_did_whatever_the_shards() -> None:
    pools: Pools = [
        [(0.9, 0.0), (0.05, 0.0), (0.3, 0.0)],  # confident, right
        [(0.9, 0.0), (0.05, 0.0), (0.01, 0.0)],  # confident, wrong
        [(0.6, 0.3), (0.4, 0.0), (0.1, 0.0)],  # calibrated, right
        [(0.9, 0.0), (0.9, 0.0), (0.1, 0.0)],  # dropped; a tie at the top holds the right one
    ]
    gold = [0, 1, 0, 1]

    def shard(rows: list[int], known: bool = True) -> tuple[ChosenScores, PseudoLabels]:
        scores = score_table([pools[row] for row in rows], gold=[gold[row] for row in rows] if known else None)
        chosen = choose_views(scores, None, PUBLISHED)
        return chosen, assign(chosen, PUBLISHED)

    whole = shard([0, 1, 2, 3])
    summary = tally([whole], 3)
    assert tally([shard([row]) for row in range(4)], 3) == summary
    counts = (summary.round, summary.num_pools_scored, summary.num_pools_selected, summary.num_pairs_selected)
    assert counts == (3, 4, 3, 8)
    assert summary.num_pools_by_rule == {"confident": 2, "calibrated": 1}
    assert summary.share_with_intents == 0.0
    table = pseudo_label_table(*whole)
    tn, fp, fn, tp = confusion_matrix(table["gold"], table["label"]).ravel().tolist()
    assert summary.confusion == {
        "true_positive": tp, "false_positive": fp, "true_negative": tn, "false_negative": fn,
    }  # fmt: skip
    assert summary.pair_accuracy == pytest.approx((tp + tn) / 8)
    assert summary.pool_accuracy == pytest.approx(2 / 3)
    assert summary.base_accuracy == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    unknown = tally([shard([0], known=False)], 1)
    assert (unknown.pool_accuracy, unknown.pair_accuracy, unknown.base_accuracy) == (None, None, None)


def test_a_pool_with_several_right_pseudo_labels_counts_once() -> None:
    several = rule(calibrate_confident_pools=True)
    chosen = choose_views(score_table([[(0.9, 0.0), (0.6, 0.0), (0.05, 0.0)]], gold=[0]), None, several)
    chosen = replace(chosen, gold=np.array([1, 1, 0]))
    assert tally([(chosen, assign(chosen, several))], 1).pool_accuracy == 1.0


# Thresholds as quantiles of what was scored.


def random_shards(seed: int, number: int) -> list[tuple[pa.Table, pa.Table | None]]:
    rng = np.random.default_rng(seed)

    def view() -> Pools:
        return [[(float(rng.beta(1, 4)), float(rng.beta(1, 9))) for _ in range(5)] for _ in range(20)]

    return [(score_table(view(), view()), intent_table(20)) for _ in range(number)]


def test_quantiles_become_the_numbers_that_cut_off_their_share() -> None:
    shards = random_shards(1, 3)
    half = PseudoLabelRule.quantiles().model_copy(update={"gain_threshold": 0.5})
    found = resolve_rule(half, shards)
    assert resolve_rule(found, shards) == found  # whose scale is absolute
    chosen = [choose_views(*shard, found) for shard in shards]
    gain = np.concatenate([scores.gain for scores in chosen])
    assert (gain > found.gain_threshold).mean() == pytest.approx(0.5, abs=0.01)
    best = np.concatenate([scores.prob.reshape(20, 5).max(1) for scores in chosen])
    assert (best > found.positive_threshold).mean() == pytest.approx(0.1, abs=0.02)
    information = np.concatenate([scores.information for scores in chosen])
    assert (information > found.confidence_threshold).mean() == pytest.approx(0.05, abs=0.01)
    assert found.negative_threshold <= found.calibrated_negative_threshold
    assert found.calibrated_negative_threshold <= found.calibrated_positive_threshold <= found.positive_threshold


def test_over_a_pool_a_candidate_competes_with_its_rivals() -> None:
    """Two pools whose best p̄ is 0.6: one is far ahead of its rivals, the other has a rival of 0.5."""
    table = score_table([[(0.6, 0.0), (0.01, 0.0), (0.01, 0.0)], [(0.6, 0.0), (0.5, 0.0), (0.01, 0.0)]])
    pairs = scores_for_rule(table, None, rule())
    assert pairs.prob == pytest.approx([0.6, 0.01, 0.01, 0.6, 0.5, 0.01])
    rivals = scores_for_rule(table, None, rule(over_pool=True))
    odds = np.array([1.5, 1 / 99, 1 / 99, 1.5, 1.0, 1 / 99])
    assert rivals.prob == pytest.approx(np.concatenate([part / part.sum() for part in np.split(odds, 2)]))
    assert assign(pairs, rule()).keep.sum() == 0
    assert assign(rivals, rule()).keep.tolist() == [True] * 3 + [False] * 3
