from __future__ import annotations

import numpy as np
import pytest
from helpers.scored_pools import scored_pools
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from icalib.core.errors import DataError
from icalib.external.fit import METHODS, CalibrationSettings, calibrate
from icalib.external.pool_features import fit_pool_features, pool_features
from icalib.metrics.calibration import ece, nll
from icalib.metrics.pairs import PoolScores

SETTINGS = CalibrationSettings()


def with_labels(pools: PoolScores, label: np.ndarray) -> PoolScores:
    return PoolScores(pools.pool_ids, pools.logit, pools.prob, label, pools.offsets)


def halves(pools: PoolScores, settings: CalibrationSettings = SETTINGS) -> tuple[set[str], set[str]]:
    report = set(calibrate(pools, settings).before.pool_ids)
    return set(pools.pool_ids) - report, report


def test_overconfident_scores_become_calibrated_on_pools_that_fitted_nothing() -> None:
    pools = scored_pools()
    found = calibrate(pools, SETTINGS)
    rows = {row.name: row for row in found.rows}
    before, chosen = rows["none"], rows[found.calibrator.method]
    assert list(rows) == list(METHODS)
    assert found.calibrator.method != "none"
    assert chosen.metrics["NLL"].value < 0.85 * before.metrics["NLL"].value
    assert chosen.metrics["ECE"].value < before.metrics["ECE"].value / 2
    assert found.p_value < 0.001
    assert chosen.metrics["NLL"].value == pytest.approx(nll(found.after.prob, found.after.label))
    assert before.metrics["ECE"].value == pytest.approx(ece(expit(found.before.logit), found.before.label))
    for row in found.rows:
        assert row.metrics["NLL"].low <= row.metrics["NLL"].value <= row.metrics["NLL"].high


def test_the_two_halves_are_a_seeded_split_by_pool() -> None:
    pools = scored_pools(101)
    fitting, report = halves(pools)
    assert (len(fitting), len(report)) == (51, 50)
    assert halves(pools) == (fitting, report)
    assert halves(pools, CalibrationSettings(seed=2)) != (fitting, report)


def test_labels_of_the_report_half_change_nothing_that_is_fitted() -> None:
    pools = scored_pools()
    found = calibrate(pools, SETTINGS)
    reported = np.isin(pools.pool, [pools.pool_ids.index(name) for name in found.before.pool_ids])
    flipped = np.where(reported, 1 - pools.label, pools.label)
    again = calibrate(with_labels(pools, flipped), SETTINGS)
    assert again.calibrator == found.calibrator
    assert again.fold_nll == found.fold_nll
    assert again.rows != found.rows


def test_calibrated_scores_stay_about_as_they_are() -> None:
    pools = scored_pools(1000, slope=1.0)
    true = logit(0.9 * np.exp(pools.logit - 1.0))  # a tenth of the pools has no right candidate
    found = calibrate(PoolScores(pools.pool_ids, true, pools.prob, pools.label, pools.offsets), SETTINGS)
    assert found.after.prob == pytest.approx(found.before.prob, abs=0.1)
    assert found.rows[0].metrics["ECE"].value < 0.03


def test_probabilities_are_calibrated_through_their_logits() -> None:
    pools = scored_pools()
    probs = PoolScores(pools.pool_ids, expit(pools.logit), pools.prob, pools.label, pools.offsets)
    found, same = calibrate(probs, SETTINGS), calibrate(pools, SETTINGS)
    assert (found.calibrator.scale, same.calibrator.scale) == ("probability", "logit")
    assert found.after.prob == pytest.approx(same.after.prob, abs=1e-3)  # probabilities end at 1e-7
    with pytest.raises(DataError, match=r"choose the scale logit"):
        calibrate(pools, CalibrationSettings(scale="probability"))


def test_the_threshold_has_the_stated_precision_on_new_pools() -> None:
    found = calibrate(scored_pools(1000), CalibrationSettings(precision=0.7))
    threshold = found.calibrator.acceptance
    assert threshold is not None
    accepted = found.after.prob >= threshold.prob
    assert found.acceptance.num_accepted == accepted.sum() > 15
    assert found.acceptance.precision.value == pytest.approx(found.after.label[accepted].mean())
    assert found.acceptance.precision.value > 0.65
    assert found.acceptance.verdict.endswith("The stated 70% holds.")
    if threshold.score is not None:
        assert np.array_equal(accepted, found.after.logit >= threshold.score)


def test_no_clean_separation_is_said_plainly() -> None:
    pools = scored_pools()
    rng = np.random.default_rng(1)
    found = calibrate(
        PoolScores(pools.pool_ids, rng.normal(size=len(pools.logit)), pools.prob, pools.label, pools.offsets), SETTINGS
    )
    assert found.calibrator.acceptance is None
    assert found.acceptance.verdict.startswith("No clean separation: no threshold has a precision of 95%")


def test_answer_sets_cover_what_they_state() -> None:
    found = calibrate(scored_pools(1000), CalibrationSettings(coverage=0.8))
    assert found.sets.coverage is not None
    assert found.sets.coverage.value == pytest.approx(0.8, abs=0.05)
    few = calibrate(scored_pools(24), CalibrationSettings(coverage=0.98, num_folds=2))
    assert few.calibrator.sets is None
    assert "too few for answer sets" in few.sets.verdict


def test_too_few_pools_are_refused() -> None:
    with pytest.raises(DataError, match="found 19 labelled pools"):
        calibrate(scored_pools(19), SETTINGS)


def test_pool_features_are_a_logistic_regression() -> None:
    pools = scored_pools()
    fitted = fit_pool_features(pools.logit, pools.label, pools.offsets)
    features = pool_features((pools.logit - fitted.centre) / fitted.spread, pools.offsets)
    features = features[:, :-1]  # ln C is constant here
    reference = LogisticRegression(C=1 / (1e-3 * len(features)), tol=1e-10, max_iter=10_000).fit(features, pools.label)
    assert min(fitted.pair_weights) > 0  # so that the bounds play no part
    expected = reference.predict_proba(features)[:, 1]
    assert fitted.apply(pools.logit, pools.offsets) == pytest.approx(expected, abs=2e-4)


def test_pool_features_are_as_described() -> None:
    z = np.array([1.0, 3.0, 2.0, 0.5, 4.0, 4.0])
    found = pool_features(z, np.array([0, 3, 4, 6]))
    assert found[:, 1].tolist() == [-2.0, 1.0, -1.0, 0.0, 0.0, 0.0]  # lead
    assert found[[0, 3, 4], 2].tolist() == [3.0, 0.5, 4.0]  # best
    assert found[[0, 3, 4], 3].tolist() == [1.0, 0.0, 0.0]  # lead of the best
    assert found[[0, 3, 4], 5] == pytest.approx(np.log([3, 1, 2]))


def test_pool_features_keep_the_order_within_a_pool() -> None:
    pools = scored_pools(seed=3)
    prob = fit_pool_features(pools.logit, pools.label, pools.offsets).apply(pools.logit, pools.offsets)
    for score, one in zip(pools.split(pools.logit), pools.split(prob), strict=True):
        assert np.array_equal(np.argsort(score), np.argsort(one))


def test_taken_pools_keep_their_candidates() -> None:
    pools = scored_pools(30)
    some = pools.subset(np.isin(np.arange(30), [2, 7]))
    assert some.pool_ids == ("q00002", "q00007")
    assert np.array_equal(some.logit, np.concatenate([pools.logit[12:18], pools.logit[42:48]]))
