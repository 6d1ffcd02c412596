from __future__ import annotations

import numpy as np
import pytest

from icalib.metrics.selective import aurc, auroc, risk_coverage


def test_the_perfect_order() -> None:
    error = np.array([0, 0, 0, 1, 1.0])
    confidence = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    assert aurc(confidence, error) == pytest.approx(sum((i - 3) / i for i in (4, 5)) / 5)
    assert auroc(confidence, error) == 1
    assert auroc(-confidence, error) == 0


def test_the_curve_by_hand() -> None:
    coverage, risk = risk_coverage(np.array([0.9, 0.5, 0.7, 0.7]), np.array([0, 1, 1, 0.0]))
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert risk == pytest.approx([0, 0.25, 1 / 3, 0.5])


def test_without_both_hits_and_errors_there_is_no_auroc() -> None:
    values = auroc(np.tile([0.1, 0.2], (3, 1)), np.array([[0, 0], [1, 1], [1, 0.0]]))
    assert np.isnan(values[:2]).all()
    assert values[2] == 1
