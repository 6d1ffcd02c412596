from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from icalib.inference.convex import fit_labels


def test_regressions_are_those_of_scikit_learn_whose_intercept_has_no_ridge_either() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(200, 3)).astype(np.float32)
    labels = (features @ rng.normal(size=(3, 2)) + 1.0 + rng.logistic(size=(200, 2)) > 0).astype(np.float32)
    found = fit_labels(features, labels, ridge=4.0)
    for number, column in enumerate(labels.T):
        expected = LogisticRegression(C=1 / 4, tol=1e-8).fit(features, column)
        assert found[:, number] == pytest.approx([*expected.coef_[0], *expected.intercept_], abs=2e-3)


def test_limit_a_large_ridge_leaves_the_frequency() -> None:
    features = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    labels = (np.arange(50) % 5 == 0).astype(np.float32)[:, None]
    assert fit_labels(features, labels, ridge=1e6)[:, 0] == pytest.approx([0, 0, logit(0.2)], abs=1e-2)
