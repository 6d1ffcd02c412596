from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom
from unit.metrics.made_predictions import simulated_table

from icalib.metrics import calibration, ranking, selective
from icalib.metrics.catalogue import find_metric, known_metrics
from icalib.metrics.pairs import PoolScores
from icalib.metrics.significance import bootstrap
from icalib.metrics.summary import measured, over_seeds, summarise

WITHOUT_INTERVAL = {"threshold", "num_pools", "R@1_chance"}
FRACTIONS = {"R@1", "R@2", "R@5", "MAP"}
GAP_INTERVAL = {"ECE", "ECE_adaptive", "ECE_top1"}


def values_of(table: pa.Table) -> dict[str, float]:
    return dict(zip(table["metric"].to_pylist(), table["value"].to_pylist(), strict=True))


def measured_directly(predictions: pa.Table, threshold: float) -> dict[str, float]:
    """Each metric by the function that a reader of its definition would call."""
    scores = PoolScores.from_predictions(predictions)
    prob, label = scores.prob, scores.label
    top = ranking.top_candidate(scores)
    by_confidence = selective.RankedPools.by(top.prob, 1 - top.hit).blocks()
    called = prob > threshold
    p, r = label[called].mean(), called[label == 1].mean()
    values = {
        **{f"R@{k}": ranking.recall_at_k(scores, k).mean() for k in (1, 2, 5)},
        "MAP": ranking.average_precision(scores).mean(),
        "R@1_chance": (binom.isf(0.05, scores.num_pools, 0.1) + 0.5) / scores.num_pools,
        "P": p,
        "R": r,
        "F1": 2 * p * r / (p + r),
        "ECE": calibration.ece(prob, label),
        "ECE_adaptive": adaptive_ece(prob, label),
        "ECE_top1": calibration.ece(top.prob, top.hit),
        "NLL": calibration.nll(prob, label),
        "Brier": calibration.brier(prob, label),
        "gap": prob.mean() - label.mean(),
        "mean_prob": prob.mean(),
        "AURC": selective.aurc(by_confidence)[0],
        "AUROC": selective.auroc(by_confidence)[0],
        "threshold": threshold,
        "num_pools": scores.num_pools,
    }
    if any(part.sum() > 1 for part in scores.split(label)):
        values |= {"MRR": ranking.reciprocal_rank(scores).mean(), "hit@1": top.hit.mean()}
    return {name: float(value) for name, value in values.items()}


def adaptive_ece(prob: np.ndarray, label: np.ndarray) -> float:
    each_a_pool = calibration.SortedPairs.of(prob, label, np.arange(prob.size))
    return float(calibration.adaptive_ece(each_a_pool, np.ones((1, prob.size)))[0])


@pytest.mark.parametrize("decimals", [None, 0])
def test_values_are_those_of_each_metric(decimals: int | None) -> None:
    predictions = simulated_table(150, seed=1, decimals=decimals)
    summary = values_of(summarise(predictions, threshold=0.4, seed=0, num_bootstrap=0))
    assert summary == pytest.approx(measured_directly(predictions, 0.4), rel=1e-5)
    assert list(summary) == [name for name, metric in known_metrics().items() if metric.applies is None]


@pytest.mark.parametrize("decimals", [None, 0])
def test_by_argmax_p_r_and_f1_are_those_of_the_best_candidates(decimals: int | None) -> None:
    predictions = simulated_table(80, seed=6, decimals=decimals)
    summaries = [
        values_of(summarise(predictions, threshold=0.4, seed=0, decision=decision, num_bootstrap=0))
        for decision in ("threshold", "argmax")
    ]
    assert summaries[1] == {**summaries[0], **dict.fromkeys(("F1", "P", "R"), pytest.approx(summaries[0]["R@1"]))}
    assert summaries[1]["F1"] != summaries[0]["F1"]


@pytest.mark.parametrize("decimals", [None, 1])
def test_intervals_are_those_of_resampled_pools(decimals: int | None) -> None:
    num_pools, num_bootstrap = 40, 60
    predictions = simulated_table(num_pools, seed=2, decimals=decimals)
    summary = summarise(predictions, threshold=0.4, seed=7, num_bootstrap=num_bootstrap)
    renamed = predictions["pool_id"]
    resampled = []
    for drawn in drawn_pools(num_pools, seed=7, num_bootstrap=num_bootstrap):
        rows = np.sort(drawn)[:, np.newaxis] * 10 + np.arange(10)
        table = predictions.take(pa.array(rows.ravel())).set_column(0, "pool_id", renamed)
        resampled.append(measured_directly(table, 0.4))
    for row in summary.to_pylist():
        name, interval = row["metric"], (row["low"], row["high"])
        if name in WITHOUT_INTERVAL:
            assert np.isnan(interval).all()
        elif name not in FRACTIONS:
            expected = np.quantile([sample[name] for sample in resampled], [0.025, 0.975])
            if name in GAP_INTERVAL:
                lower = 2 * row["value"] ** 2 - expected[1] ** 2
                expected = np.clip([np.sqrt(max(lower, 0)), 2 * row["value"] - expected[0]], 0, 1)
            assert interval == pytest.approx(tuple(expected), abs=1e-8), name


def drawn_pools(num_pools: int, *, seed: int, num_bootstrap: int) -> np.ndarray:
    seen: list[np.ndarray] = []

    def remember(drawn: np.ndarray) -> dict[str, np.ndarray]:
        seen.append(drawn)
        return {}

    bootstrap(remember, num_pools, seed=seed, num_bootstrap=num_bootstrap)
    return np.concatenate(seen)


@pytest.mark.parametrize("missing", [{"AUROC": float("nan")}, {"AUROC": None}, {}])
def test_a_mean_over_seeds_of_which_one_has_no_value_is_none(missing: dict[str, float | None]) -> None:
    """A seed that answers every pool right has no AUROC; the others' mean isn't that of all seeds."""
    seeds = [{"test": values} for values in ({"AUROC": 0.9}, missing, {"AUROC": 0.7})]
    assert over_seeds(seeds, "test", "AUROC") == (None, None)
    assert over_seeds([seeds[0], seeds[2]], "test", "AUROC") == pytest.approx((0.8, 0.02**0.5))
    assert over_seeds(seeds[:1], "test", "AUROC") == (0.9, None)


@pytest.mark.parametrize("num_candidates", [2, 10, 100])
def test_chance_is_exceeded_in_at_most_a_twentieth_of_random_orders(num_candidates: int) -> None:
    """Of 100 candidates the normal approximation's limit is exceeded in 18 % of cases with 20 pools."""
    wrong = [0] * (num_candidates - 1)
    for number in (4, 10, 12, 20, 30, 100):
        scores = PoolScores.from_lists([[0.0, *wrong]] * number, [[1, *wrong]] * number)
        hits = np.arange(number + 1)
        above = hits / number > find_metric("R@1_chance").value(scores)
        assert binom.pmf(hits, number, 1 / num_candidates)[above].sum() <= 0.05
        assert not above.any() or binom.sf(hits[above][0] - 2, number, 1 / num_candidates) > 0.05


def test_chance_of_several_right_candidates_and_sizes_is_a_limit_of_random_orders() -> None:
    sizes, rng = [2, 5, 20] * 20, np.random.default_rng(0)
    labels = [[1, *rng.integers(2, size=size - 1).tolist()] for size in sizes]
    limit = find_metric("R@1_chance").value(PoolScores.from_lists([[0.0] * size for size in sizes], labels))
    orders = [PoolScores.from_lists([rng.uniform(size=size).tolist() for size in sizes], labels) for _ in range(300)]
    assert np.mean([ranking.recall_at_k(scores, 1).mean() > limit for scores in orders]) <= 0.05


def test_a_metric_without_a_value_is_left_out_of_what_json_has() -> None:
    rows = [{"metric": "MAP", "value": 0.5}, {"metric": "AUROC", "value": math.nan}]
    assert measured(rows) == {"MAP": 0.5}
