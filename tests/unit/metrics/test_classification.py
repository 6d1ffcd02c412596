from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.metrics.made_predictions import pool_scores

from icalib.core.errors import DataError
from icalib.metrics.catalogue import find_metric
from icalib.metrics.classification import Decision, fit_threshold
from icalib.metrics.metric import Evaluation
from icalib.metrics.pairs import PoolScores

PAIRS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0, 1])), min_size=1, max_size=30)


def decided(scores: PoolScores, threshold: float = 0.5, decision: Decision = "threshold") -> list[float]:
    """Precision, recall and F1."""
    evaluation = Evaluation(scores, threshold, decision)
    return [find_metric(name).value(evaluation) for name in ("P", "R", "F1")]


def test_by_argmax_with_several_right_candidates() -> None:
    scores = pool_scores([[3, 2, 1], [1, 2]], [[1, 1, 0], [1, 0]])
    assert decided(scores, decision="argmax") == pytest.approx([1 / 2, 1 / 3, 2 / 5])


@given(PAIRS)
@example([(0.0, 1), (0.0, 0)])
@example([(1.0, 1), (np.nextafter(1.0, 0.0), 0)])
@example([(np.nextafter(0.5, 0.0), 0), (0.5, 1), (np.nextafter(0.5, 1.0), 0)])
def test_no_threshold_beats_the_fitted_one(pairs: list[tuple[float, int]]) -> None:
    prob, label = np.array([p for p, _ in pairs]), np.array([y for _, y in pairs])
    threshold = fit_threshold(prob, label)
    assert 0 <= threshold < 1
    scores = PoolScores(("pool",), prob, prob, label, np.array([0, len(prob)]))
    fitted = decided(scores, threshold)[2]
    assert all(decided(scores, other)[2] <= fitted for other in (0.0, *prob))


def test_the_threshold_is_midway_and_nearest_one_half() -> None:
    label = np.array([0, 0, 1, 1])
    assert fit_threshold(np.array([0.1, 0.2, 0.6, 0.7]), label) == pytest.approx(0.4)
    # without a right pair every threshold is as good as any other: (0.45 + 0.6) / 2 is nearest to 0.5
    assert fit_threshold(np.array([0.1, 0.2, 0.45, 0.6]), np.zeros(4, int)) == pytest.approx(0.525)


@pytest.mark.parametrize("prob", [[], [0.5, np.nan], [0.5, 1.1]])
def test_a_threshold_needs_probabilities(prob: list[float]) -> None:
    with pytest.raises(DataError, match="threshold can't be fitted"):
        fit_threshold(np.array(prob), np.zeros(len(prob), int))
