from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax

from icalib.calibration.calibrator import (
    AbstractCalibrator,
    Isotonic,
    Platt,
    PoolSoftmax,
    PriorShift,
    Temperature,
    smoothed_targets,
)
from icalib.calibration.fitted import AffineMap, PoolSoftmaxMap, prob_logit
from icalib.core.errors import SettingError
from icalib.metrics.calibration import ece, nll

CALIBRATORS: dict[str, AbstractCalibrator] = {
    "temperature": Temperature.Config().build(),
    "platt": Platt.Config().build(),
    "isotonic": Isotonic.Config().build(),
    "prior-shift": PriorShift.Config().build(),
}
FITTED = ("temperature", "platt", "isotonic")


def pairs(num_pairs: int, *, seed: int, slope: float = 1.0, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores f, and labels drawn with chance σ(slope · f + offset)."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0, 2, num_pairs)
    return logit, (rng.random(num_pairs) < expit(slope * logit + offset)).astype(np.int64)


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_a_prior_shift_of_a_focal_model_is_exact_at_the_population_minimiser(gamma: float) -> None:
    """A model that minimises the expected focal loss at 1:1, met with nine wrong candidates for each right one."""

    def minimiser(true_prob: float) -> float:
        def expected_loss(f: float) -> float:
            p = expit(f)
            return -true_prob * (1 - p) ** gamma * np.log(p) - (1 - true_prob) * p**gamma * np.log1p(-p)

        return float(minimize_scalar(expected_loss, bounds=(-15, 15), method="bounded", options={"xatol": 1e-10}).x)

    shifted_prob = np.array([0.01, 0.2, 0.5, 0.917, 0.99])
    balanced_prob = 9 * shifted_prob / (9 * shifted_prob + 1 - shifted_prob)
    logit = np.array([minimiser(p) for p in balanced_prob])
    calibrator = PriorShift.Config(gamma=gamma).build()
    fitted = calibrator.fit(np.arange(10.0), np.array([1] + [0] * 9), train_prior=0.5)
    np.testing.assert_allclose(fitted.apply(logit), shifted_prob, rtol=1e-3)
    uncorrected = CALIBRATORS["prior-shift"].fit(np.arange(10.0), np.array([1] + [0] * 9), train_prior=0.5)
    assert uncorrected.apply(logit)[3] < 0.75


def test_platt_takes_scores_of_any_scale() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(5000, 700, 20000)
    label = (rng.random(20000) < expit(0.003 * (score - 6000))).astype(np.int64)
    prob = CALIBRATORS["platt"].fit(score, label).apply(np.array([5000.0, 6000.0, 7000.0]))
    np.testing.assert_allclose(prob, expit([-3, 0, 3]), atol=0.02)


@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1e4, 1e9])
def test_temperature_scaling_of_scores_does_not_depend_on_their_unit(unit: float) -> None:
    logit, label = pairs(2000, seed=3, slope=0.7)
    expected, fitted = (CALIBRATORS["temperature"].fit(scores, label) for scores in (logit, unit * logit))
    np.testing.assert_allclose(fitted.apply(unit * logit), expected.apply(logit), rtol=1e-5)


@pytest.mark.parametrize(("unit", "level"), [(1e-9, 0.0), (1e6, 0.0), (1.0, 1e6)])
def test_a_softmax_over_pools_depends_on_neither_unit_nor_level_of_the_scores(unit: float, level: float) -> None:
    logit, sizes = np.random.default_rng(4).normal(size=(500, 4)), np.full(500, 4)
    label = (logit + np.random.default_rng(5).gumbel(size=(500, 4))).argmax(1)[:, None] == np.arange(4)
    calibrator = PoolSoftmax.Config().build()
    expected, found = (
        calibrator.fit(scores.ravel(), label.ravel().astype(np.int64), sizes_P=sizes)
        for scores in (logit, unit * logit + level)
    )
    assert isinstance(expected, PoolSoftmaxMap)
    assert isinstance(found, PoolSoftmaxMap)
    assert unit * found.slope == pytest.approx(expected.slope, rel=1e-5)


@pytest.mark.parametrize("score", [3.0, 0.1, -2.2, 1e20, 1e-200])
@pytest.mark.parametrize("num_pairs", [50, 150, 170, 1000])  # some means of 0.1 are not 0.1
def test_platt_scaling_of_constant_scores_is_the_smoothed_base_rate(score: float, num_pairs: int) -> None:
    label = np.arange(num_pairs) % 10 // 9
    for noise in (0.0, 1e-15):  # of a sum that is the same but for rounding
        scores = score * (1 + noise * np.random.default_rng(1).normal(size=num_pairs))
        fitted = CALIBRATORS["platt"].fit(scores, label)
        np.testing.assert_allclose(fitted.apply(scores), smoothed_targets(label).mean(), atol=1e-4)


@pytest.mark.parametrize("name", FITTED)
def test_scores_in_the_wrong_order_never_reverse_the_ranking(name: str) -> None:
    logit, label = pairs(500, seed=8, slope=-2)
    prob = CALIBRATORS[name].fit(logit, label).apply(np.array([-3.0, 3.0]))
    assert prob[0] <= prob[1]
    assert prob == pytest.approx(label.mean() if name != "temperature" else 0.5, abs=0.02)


@pytest.mark.parametrize("name", FITTED)
def test_perfect_scores_get_a_finite_map(name: str) -> None:
    logit = np.array([-2.0, -1.0, 1.0, 2.0])
    prob = CALIBRATORS[name].fit(logit, (logit > 0).astype(np.int64)).apply(logit)
    assert (prob[:2] < 0.5).all()
    assert (prob[2:] > 0.5).all()


def test_isotonic_regression_is_not_certain_of_few_separable_pairs() -> None:
    prob = CALIBRATORS["isotonic"].fit(np.arange(10.0), np.array([0] * 8 + [1] * 2)).apply(np.array([0.0, 9.0]))
    np.testing.assert_allclose(prob, [1 / 10, 3 / 4])  # Platt's targets


@pytest.mark.parametrize("train_prior", [None, 0.0, 1.0, math.nan])
def test_a_prior_shift_needs_the_prior_of_training(train_prior: float | None) -> None:
    with pytest.raises(SettingError, match="needs the fraction of right pairs in training"):
        CALIBRATORS["prior-shift"].fit(np.array([0.0, 1.0]), np.array([0, 1]), train_prior=train_prior)


def choices(num_pools: int, slope: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of pools of 2 to 6 candidates on levels of their own, and right ones drawn by softmax(slope · f)."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(2, 7, num_pools)
    pools = [rng.normal(0, 1, size) for size in sizes]
    labels = [np.arange(len(f)) == rng.choice(len(f), p=softmax(slope * f)) for f in pools]
    return np.concatenate([f + rng.normal(0, 5) for f in pools]), np.concatenate(labels).astype(np.int64), sizes


def test_a_softmax_over_pools_finds_the_slope_whatever_a_pools_level() -> None:
    logit, label, sizes = choices(4000, slope=1.7)
    fitted = PoolSoftmax.Config().build().fit(logit, label, sizes_P=sizes)
    assert isinstance(fitted, PoolSoftmaxMap)
    assert fitted.slope == pytest.approx(1.7, abs=0.1)
    prob = fitted.apply(logit, sizes)
    assert np.add.reduceat(prob, np.cumsum(sizes) - sizes) == pytest.approx(1.0)
    assert ece(prob, label) < 0.01
    assert nll(prob, label) < nll(CALIBRATORS["platt"].fit(logit, label).apply(logit), label) - 0.05


@pytest.mark.parametrize("score", [0.0, 0.3, -0.3, 1.3, -7.1])
@pytest.mark.parametrize("noise", [0.0, 1e-16, 2e-7])  # of float64 and float32
def test_pools_that_differ_by_rounding_have_no_influence_on_the_scale_of_a_softmax(score: float, noise: float) -> None:
    """Even the mean of equal scores may differ from them by a rounding error."""
    logit, label, sizes = choices(200, slope=1.7)
    all_sizes = np.concatenate([sizes, np.full(400, 10)])
    labels = np.concatenate([label, np.arange(4000) % 10 == 0])
    equal = score + noise * np.random.default_rng(2).normal(size=4000)
    expected, found = (
        PoolSoftmax.Config().build().fit(np.concatenate([logit, others]), labels, sizes_P=all_sizes)
        for others in (np.zeros(4000), equal)
    )
    assert isinstance(found, PoolSoftmaxMap)
    assert isinstance(expected, PoolSoftmaxMap)
    assert found.slope == pytest.approx(expected.slope, rel=1e-5)
    assert 1 < found.slope < 3


@pytest.mark.parametrize("slope", [0.5, 1.0])
def test_probabilities_that_are_a_softmax_already_are_only_sharpened_or_flattened(slope: float) -> None:
    """Those of JM and GRN: their logits as pairs are no longer the model's, at any level."""
    logit, label, sizes = choices(4000, slope)
    pools = np.split(logit, np.cumsum(sizes)[:-1])
    own_prob, true_prob = (np.concatenate([softmax(a * f) for f in pools]) for a in (1.0, slope))
    fitted = PoolSoftmax.Config().build().fit(prob_logit(own_prob), label, sizes_P=sizes)
    np.testing.assert_allclose(fitted.apply(prob_logit(own_prob), sizes), true_prob, atol=0.02)


@pytest.mark.parametrize("sizes", [None, np.array([2, 2])])
def test_a_softmax_is_platt_scaling_if_a_pool_has_several_right_candidates(sizes: np.ndarray | None) -> None:
    scores, labels = np.arange(4.0), np.array([0, 1, 1, 1])
    found = PoolSoftmax.Config().build().fit(scores, labels, sizes_P=sizes)
    assert found == CALIBRATORS["platt"].fit(scores, labels)


def test_pools_without_a_right_candidate_have_no_influence_on_a_softmax() -> None:
    logit, label, sizes = choices(50, slope=1.7)
    found, expected = (
        PoolSoftmax.Config().build().fit(*scores, sizes_P=each)
        for scores, each in (
            ((np.append(logit, [1.0, 3.0]), np.append(label, [0, 0])), np.append(sizes, 2)),
            ((logit, label), sizes),
        )
    )
    assert isinstance(found, PoolSoftmaxMap)
    assert isinstance(expected, PoolSoftmaxMap)
    assert found.slope == pytest.approx(expected.slope, rel=1e-6)
    p_none = np.linspace(0, 1, len(sizes))
    prob = expected.apply(logit, sizes, p_none)
    assert np.add.reduceat(prob, np.cumsum(sizes) - sizes) == pytest.approx(1 - p_none)


@pytest.mark.parametrize("num_pools", [1, 9])
def test_pools_that_are_all_ranked_right_get_a_softmax_with_one_pool_more_of_equal_candidates(num_pools: int) -> None:
    logit, label, sizes = np.tile([1.0, 0.0], num_pools), np.tile([1, 0], num_pools), np.full(num_pools, 2)
    fitted = PoolSoftmax.Config().build().fit(logit, label, sizes_P=sizes)
    assert fitted.apply(logit, sizes)[0] == pytest.approx((num_pools + 0.5) / (num_pools + 1), rel=1e-5)


def test_a_pair_without_its_pool_has_platts_probability() -> None:
    logit, label, sizes = choices(50, slope=1.7)
    fitted = PoolSoftmax.Config().build().fit(logit, label, sizes_P=sizes)
    assert fitted.of_pairs == CALIBRATORS["platt"].fit(logit, label) != fitted


class Own(AbstractCalibrator):
    result: Any = None

    def _fit(self, *given: Any) -> Any:
        return self.result()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda: None, "returned None; expected AffineMap or IsotonicMap or FocalInverseMap or PoolSoftmaxMap"),
        (lambda: (1.0, 0.0), r"returned \(1.0, 0.0\)"),
        (lambda: expit, "returned <ufunc 'expit'>"),
        (lambda: AffineMap(slope=-1, offset=0), r"failed: AffineMap\.slope: found -1, expected greater than 0"),
        (lambda: AffineMap(slope=math.nan, offset=0), r"failed: AffineMap\.slope: found NaN, expected "),
    ],
)
def test_a_calibrator_with_a_mistake_is_named(result: Any, words: str) -> None:
    own = Own({})
    own.result = result
    with pytest.raises(SettingError, match=rf"the calibrator `{Own.__module__}\.Own` {words}"):
        own.fit(*pairs(20, seed=0))


def test_a_calibrator_without_its_fit_is_named() -> None:
    with pytest.raises(SettingError, match=r"AbstractCalibrator` has no method `_fit`"):
        AbstractCalibrator({}).fit(*pairs(20, seed=0))
