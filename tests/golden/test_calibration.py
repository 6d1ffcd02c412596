"""Calibrators beside those of scikit-learn, fitted on the same pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression

from icalib.calibration.calibrator import Isotonic, Platt, Temperature, smoothed_targets

GRID = np.linspace(-12, 12, 49)


class Scorer(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose decision function is its one feature."""

    def fit(self, features: Any, labels: Any) -> Scorer:
        self.classes_ = np.array([0, 1])
        return self

    def decision_function(self, features: Any) -> Any:
        return features[:, 0]

    def predict(self, features: Any) -> Any:
        return (features[:, 0] > 0).astype(np.int64)


@pytest.fixture(scope="module", params=[60, 4000])
def pairs(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    """Scores rounded to one decimal (which makes ties) of a model three times too sure; one right pair in ten."""
    rng = np.random.default_rng(request.param)
    label = (rng.random(request.param) < 0.1).astype(np.int64)
    return rng.normal(-2 + 3 * label, 3).round(1), label


def by_scikit_learn(method: Any, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    logit, label = pairs
    scorer = FrozenEstimator(Scorer().fit(None, None))
    model = CalibratedClassifierCV(scorer, method=method).fit(logit[:, None], label)
    return model.predict_proba(GRID[:, None])[:, 1]


def test_platt_agrees_with_sigmoid_calibration(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    prob = Platt.Config().build().fit(*pairs).apply(GRID)
    np.testing.assert_allclose(prob, by_scikit_learn("sigmoid", pairs), atol=1e-4)


def test_temperature_agrees_with_temperature_calibration(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    prob = Temperature.Config().build().fit(*pairs).apply(GRID)
    np.testing.assert_allclose(prob, by_scikit_learn("temperature", pairs), atol=1e-4)


def test_isotonic_agrees_with_isotonic_regression_to_smoothed_targets(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    logit, label = pairs
    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(logit, smoothed_targets(label))
    prob = Isotonic.Config().build().fit(*pairs).apply(GRID)
    np.testing.assert_allclose(prob, model.predict(GRID), atol=1e-12)
    np.testing.assert_allclose(prob, by_scikit_learn("isotonic", pairs), atol=1 / label.sum())  # to labels of 0 and 1
