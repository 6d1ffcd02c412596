from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.artifacts import known
from hypothesis import given
from hypothesis import strategies as st
from unit.regimes.made_scores import intent_table, score_table

from icalib.core.events import ignore
from icalib.core.files import read_json
from icalib.regimes.pseudo_labelling import PseudoLabelJob, preview
from icalib.regimes.pseudo_labels import (
    SELECT_NONE,
    PseudoLabelRule,
    assign,
    negative_at,
    positive_at,
    resolve_rule,
    scores_for_rule,
)
from icalib.regimes.round_tally import ShardTally, round_summary
from icalib.scoring.gain import choose_views
from icalib.stages.executor import LocalExecutor

PROBS = st.sampled_from([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])  # few values, so that there are ties


@st.composite
def pools(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two highest p̄ of some pools, and whether the highest is right."""
    pairs = draw(st.lists(st.tuples(PROBS, PROBS, st.booleans()), min_size=1, max_size=60))
    best, second = np.array([sorted(pair[:2], reverse=True) for pair in pairs]).T
    return best, second, np.array([pair[2] for pair in pairs], np.int64)


@given(pools(), st.sampled_from([0.5, 0.75, 0.9]))
def test_the_positive_threshold_selects_most_pools_at_its_precision(
    made: tuple[np.ndarray, np.ndarray, np.ndarray], precision: float
) -> None:
    best, second, right = made

    def selected(threshold: float) -> tuple[int, float]:
        chosen = (best > threshold) & (second <= threshold)
        return int(chosen.sum()), float(right[chosen].mean()) if chosen.any() else 0.0

    allowed = [number for t in np.linspace(0, 1, 201) for number, p in [selected(t)] if number >= 10 and p >= precision]
    found = positive_at(best, second, right, precision)
    if found == SELECT_NONE:
        assert not allowed
    else:
        number, reached = selected(found)
        assert (number, reached >= precision) == (max(allowed), True)


@given(st.lists(st.tuples(PROBS, st.booleans()), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_negative_threshold_is_the_largest_at_its_precision(
    made: list[tuple[float, bool]], precision: float
) -> None:
    probs, wrong = np.array([prob for prob, _ in made]), np.array([is_wrong for _, is_wrong in made])
    allowed = [t for t in np.unique(probs) if wrong[probs <= t].mean() >= precision]
    assert negative_at(probs, wrong, precision) == (max(allowed) if allowed else 0.0)


def test_pools_of_unknown_label_do_not_count_and_a_teacher_that_guesses_selects_nobody() -> None:
    best, second = np.full(20, 0.9), np.zeros(20)
    is_right = np.array([1] * 10 + [-1] * 10)
    assert positive_at(best, second, is_right, 0.9) < 0.9
    assert positive_at(best, second, np.where(is_right < 0, 0, is_right), 0.9) == SELECT_NONE
    assert positive_at(best[:9], second[:9], is_right[:9], 0.9) == SELECT_NONE  # nine pools tell nothing
    guessed = score_table([[(0.9, 0.1), (0.2, 0.0)]] * 40, gold=[0, 1] * 20), None
    summary = preview([guessed], PseudoLabelRule.precisions(), 1, [guessed])
    assert summary.num_pools_selected == 0
    assert (summary.information_reliability, summary.gain_reliability, summary.num_pools_with_intents) == (None,) * 3


def test_negatives_at_the_threshold_of_a_precision_are_selected() -> None:
    """All of those that are equal, as most are where a sum reads no intents, not only what is below them."""
    pools = [[(0.9, 0.0), (0.02, 0.0)] for _ in range(98)] + [[(0.9, 0.0), (0.01, 0.0)], [(0.01, 0.0), (0.9, 0.0)]]
    table = score_table(pools, gold=[0] * 100), None
    rule = resolve_rule(PseudoLabelRule.precisions(), [table], [table])
    assert (scores_for_rule(*table, rule).prob < rule.negative_threshold).sum() == 100


@pytest.mark.parametrize("num_likely", [0, 100])
def test_thresholds_of_precisions_are_in_order(num_likely: int) -> None:
    """Also where no pool is left for the calibrated ones, or where λ̃⁻ alone would be above λ̃⁺."""
    others = [(0.1, 0.0)] * 59
    pools = [[(0.9, 0.0), *others]] * 20 + [[(0.5, 0.0), *others]] * num_likely
    table = score_table(pools, gold=[0] * 20 + [int(number % 20 < 3) for number in range(num_likely)]), None
    found = resolve_rule(PseudoLabelRule.precisions(), [table], [table])
    high, low = found.calibrated_positive_threshold, found.calibrated_negative_threshold
    assert low <= high <= found.positive_threshold < SELECT_NONE


def test_pools_of_unknown_label_change_no_threshold_of_a_precision() -> None:
    pools = [[(0.9, 0.0), (0.02, 0.0)]] * 100
    known, both = (score_table(pools * n, gold=([0] * 100 + [-1] * 100)[: 100 * n]) for n in (1, 2))
    rule = PseudoLabelRule.precisions()
    found = [resolve_rule(rule, [(known, None)], [(one, None)]).thresholds for one in (known, both)]
    assert found[0] == found[1]
    assert found[0]["negative_threshold"] > 0.02


def scored(seed: int, number: int) -> tuple[Any, None]:
    """A teacher whose best candidate is right as often as its p̄ says."""
    rng = np.random.default_rng(seed)
    best = rng.uniform(0.3, 1.0, number)
    made = [[(p, 0.1), (0.2, 0.0), (0.1, 0.0)] for p in best]
    gold = np.where(rng.random(number) < best, 0, 1).tolist()
    return score_table(made, gold=gold), None


def test_precisions_of_validation_hold_on_other_pools_of_the_same_kind() -> None:
    unlabelled, validation = scored(0, 2000), scored(1, 2000)
    rule = PseudoLabelRule.precisions()
    found = resolve_rule(rule, [unlabelled], [validation])
    assert found.scale == "absolute"
    # The mean of p above t is (1 + t) / 2 where p is uniform: 0.9 of the pools above 0.8 are right.
    assert found.positive_threshold == pytest.approx(0.8, abs=0.07)
    chosen = choose_views(*unlabelled, found)
    labels = assign(chosen, found)
    positive = (labels.label == 1) & labels.keep & (labels.reason == "confident")
    assert chosen.gold[positive].mean() == pytest.approx(0.9, abs=0.04)
    summary = preview([unlabelled], rule, 1, [validation])
    assert (summary.validation_pools_selected or 0) > 500
    assert summary.thresholds["positive_threshold"] == found.positive_threshold


def halves(plain: np.ndarray, intent: np.ndarray, names: list[list[list[int]]]) -> tuple[Any, Any]:
    """Pools of two candidates with g of even and odd passes in both views; [2, pools * 2] each."""
    made = [[(0.6, 0.1), (0.3, 0.1)]] * len(names)
    table = score_table(made, made)
    values = np.concatenate([plain, intent], 1)
    for name, column in zip(("information_even", "information_odd"), values, strict=True):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(column))
    intents = intent_table(len(names))
    return table, intents.set_column(2, intents.schema.field(2), pa.array(names, intents.schema.field(2).type))


def test_reliability_is_the_spearman_brown_corrected_correlation_of_the_halves() -> None:
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(2, 40))
    plain, intent = (values + rng.normal(size=(2, 40)) for values in signal[:, None])
    names = [[[0]]] * 15 + [[[]]] * 5  # the last five pools have no intents
    shard = halves(plain, intent, names)
    tallies: list[ShardTally] = []
    for start in (0, 10):  # two shards
        rows = np.isin(shard[0]["row"].to_numpy(), range(start, start + 10))
        chosen = choose_views(shard[0].filter(pa.array(rows)), shard[1], PseudoLabelRule())
        tallies.append(ShardTally.of(chosen, assign(chosen, PseudoLabelRule())))
    found = round_summary(tallies, PseudoLabelRule(), 1)

    def corrected(pairs: np.ndarray) -> float:
        r = np.corrcoef(pairs)[0, 1]
        return 2 * r / (1 + r)

    assert found.information_reliability == pytest.approx(corrected(plain))
    assert found.gain_reliability == pytest.approx(corrected((intent - plain)[:, :30]))
    assert found.num_pools_with_intents == 15


def test_a_round_is_labelled_in_blocks_whose_size_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    scores = tmp_path / "scores"
    scores.mkdir()
    for number in range(5):
        pools = [[tuple(pair) for pair in rng.uniform(size=(3, 2)).tolist()] for _ in range(4)]
        pq.write_table(score_table(pools, pools, gold=[0, 1, -1, 2]), scores / f"scores-{number:06d}.parquet")
        pq.write_table(intent_table(4), scores / f"intents-{number:06d}.parquet")
    job = PseudoLabelJob(scores=known(scores), rule=PseudoLabelRule.quantiles(), round=1)
    found: list[dict[str, Any]] = []
    for size in (1, 2, 64):
        monkeypatch.setattr("icalib.regimes.pseudo_labelling._SCORES_PER_SHARD", size)
        folder = tmp_path / str(size)
        folder.mkdir()
        LocalExecutor().map(job, folder, "pseudo-labels", ignore)
        labels = [pq.read_table(path).to_pydict() for path in sorted(folder.glob("pseudo-*.parquet"))]
        found.append({"labels": repr(labels), "summary": read_json(folder / "summary.json")})
    assert found[0] == found[1] == found[2]
    assert found[0]["summary"]["num_pools_scored"] == 20
    assert found[0]["summary"]["num_pools_selected"] > 0


def test_a_block_is_labelled_where_the_scores_are_at_another_path(tmp_path: Path) -> None:
    """As on another machine of a cluster, whose copy of an object store is in a folder of its own."""
    for folder in ("here", "there", "labels"):
        (tmp_path / folder).mkdir()
    table = score_table([[(0.9, 0.1), (0.05, 0.0)]], gold=[0])
    pq.write_table(table, tmp_path / "here" / "scores-000000.parquet")
    (block,) = PseudoLabelJob(scores=known(tmp_path / "here"), rule=PseudoLabelRule(), round=1).shards()
    (tmp_path / "here" / "scores-000000.parquet").rename(tmp_path / "there" / "scores-000000.parquet")
    other = PseudoLabelJob(scores=known(tmp_path / "there"), rule=PseudoLabelRule(), round=1)
    other.compute_shard(0, block, tmp_path / "labels", torch.device("cpu"))
    assert pq.read_table(tmp_path / "labels" / "pseudo-000000.parquet")["label"].to_pylist() == [1, 0]
