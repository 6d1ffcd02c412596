"""Metrics beside those of pytrec_eval, netcal, scikit-learn and SciPy, on the same predictions."""

from __future__ import annotations

import netcal.metrics
import numpy as np
import pytest
import pytrec_eval
from scipy import stats
from sklearn import metrics as sklearn_metrics
from unit.metrics.made_predictions import pool_scores, simulated_table

from icalib.metrics import calibration, classification, ranking, selective
from icalib.metrics.catalogue import find_metric
from icalib.metrics.metric import Evaluation
from icalib.metrics.pairs import PoolScores
from icalib.metrics.significance import bootstrap, gap_interval, percentile_interval


@pytest.fixture(scope="module")
def scores() -> PoolScores:
    return PoolScores.from_predictions(simulated_table(400, seed=11))


@pytest.fixture(scope="module")
def graded() -> PoolScores:
    """Ragged pools with several right candidates and no ties."""
    rng = np.random.default_rng(12)
    sizes = rng.integers(2, 15, size=200)
    logits = [(rng.permutation(size) - size / 2).tolist() for size in sizes]
    labels = [[1, *rng.integers(2, size=size - 1).tolist()] for size in sizes]
    return pool_scores(logits, labels)


@pytest.mark.parametrize("name", ["scores", "graded"])
def test_ranking_agrees_with_trec_eval(name: str, request: pytest.FixtureRequest) -> None:
    scores: PoolScores = request.getfixturevalue(name)
    relevance: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for pair, pool in enumerate(scores.pool):
        candidate = f"candidate-{pair}"
        relevance.setdefault(scores.pool_ids[pool], {})[candidate] = int(scores.label[pair])
        run.setdefault(scores.pool_ids[pool], {})[candidate] = float(scores.logit[pair])
    found = pytrec_eval.RelevanceEvaluator(relevance, {"map", "recip_rank", "recall.1,2,5", "P_1"}).evaluate(run)
    by_pool = [found[pool_id] for pool_id in scores.pool_ids]
    assert ranking.average_precision(scores) == pytest.approx([pool["map"] for pool in by_pool])
    assert ranking.reciprocal_rank(scores) == pytest.approx([pool["recip_rank"] for pool in by_pool])
    for k in (1, 2, 5):
        assert ranking.recall_at_k(scores, k) == pytest.approx([pool[f"recall_{k}"] for pool in by_pool])
    assert ranking.top_candidate(scores).hit == pytest.approx([pool["P_1"] for pool in by_pool])


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_calibration_errors_agree_with_netcal(scores: PoolScores, num_bins: int) -> None:
    prob, label = scores.prob, scores.label
    expected = netcal.metrics.ECE(bins=num_bins).measure(prob, label)
    assert calibration.ece(prob, label, num_bins=num_bins) == pytest.approx(expected)


@pytest.mark.parametrize("threshold", [0.1, 0.37, 0.5, 0.9])
def test_classification_agrees_with_scikit_learn(scores: PoolScores, threshold: float) -> None:
    expected = sklearn_metrics.precision_recall_fscore_support(
        scores.label, scores.prob > threshold, average="binary", zero_division=0
    )
    evaluation = Evaluation(scores, threshold)
    assert [find_metric(name).value(evaluation) for name in ("P", "R", "F1")] == pytest.approx(expected[:3])


def test_the_fitted_threshold_reaches_the_best_f1_of_scikit_learn(scores: PoolScores) -> None:
    p, r, _ = sklearn_metrics.precision_recall_curve(scores.label, scores.prob)
    threshold = classification.fit_threshold(scores.prob, scores.label)
    fitted = find_metric("F1").value(Evaluation(scores, threshold))
    assert fitted == pytest.approx(np.max(2 * p * r / np.maximum(p + r, 1e-12)))


def test_proper_scores_agree_with_scikit_learn(scores: PoolScores) -> None:
    prob, label = scores.prob, scores.label
    log_loss = sklearn_metrics.log_loss(label, prob)
    assert calibration.nll(prob, label) == pytest.approx(log_loss)
    assert calibration.nll_from_logits(scores.logit, label) == pytest.approx(log_loss)
    assert calibration.brier(prob, label) == pytest.approx(sklearn_metrics.brier_score_loss(label, prob))


def test_adaptive_calibration_errors_agree_with_netcal(scores: PoolScores) -> None:
    expected = netcal.metrics.ECE(bins=10, equal_intervals=False).measure(scores.prob, scores.label)
    assert find_metric("ECE_adaptive").value(scores) == pytest.approx(expected)


@pytest.mark.parametrize("decimals", [None, 1])
def test_auroc_agrees_with_scikit_learn(scores: PoolScores, decimals: int | None) -> None:
    top = ranking.top_candidate(scores)
    confidence = top.prob if decimals is None else top.prob.round(decimals)
    expected = sklearn_metrics.roc_auc_score(top.hit, confidence)
    pools = selective.RankedPools.by(confidence, 1 - top.hit)
    assert selective.auroc(pools.blocks()) == pytest.approx(expected)


def test_wilson_intervals_agree_with_scipy() -> None:
    for successes, count in [(0, 5), (5, 5), (3, 17), (450, 900)]:
        expected = stats.binomtest(successes, count).proportion_ci(0.95, method="wilson")
        interval = calibration.wilson_interval(np.array(float(successes)), np.array(float(count)))
        assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_bootstrap_intervals_agree_with_scipy(scores: PoolScores) -> None:
    precision = ranking.average_precision(scores)
    values = bootstrap(lambda pools: {"MAP": precision[pools].mean(axis=1)}, scores.num_pools, seed=0)["MAP"]
    drawn = percentile_interval(values)
    expected = stats.bootstrap((precision,), np.mean, method="percentile", rng=np.random.default_rng(1))
    spread = expected.standard_error
    assert drawn.low == pytest.approx(expected.confidence_interval.low, abs=0.25 * spread)
    assert drawn.high == pytest.approx(expected.confidence_interval.high, abs=0.25 * spread)


def test_intervals_of_gaps_agree_with_scipy(scores: PoolScores) -> None:
    """Their ends are those of basic intervals: of the mean, and of its square."""
    precision = ranking.average_precision(scores)
    values, ends = np.zeros(0), list[tuple[float, float]]()
    for power in (1, 2):

        def mean(sample: np.ndarray, axis: int = -1, power: int = power) -> np.ndarray:
            return sample.mean(axis=axis) ** power

        found = stats.bootstrap((precision,), mean, method="basic", rng=np.random.default_rng(1))
        values = found.bootstrap_distribution ** (1 / power)
        ends.append(tuple(np.array(found.confidence_interval) ** (1 / power)))
    interval = gap_interval(values, precision.mean(), bounds=(0, 1))
    assert interval == pytest.approx((ends[1][0], ends[0][1]))
