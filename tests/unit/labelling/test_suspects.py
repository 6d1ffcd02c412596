from __future__ import annotations

import numpy as np
import pytest

from icalib.labelling.suspects import Doubts
from icalib.metrics.pairs import PoolScores


def doubts(probs: list[list[float]], labels: list[list[int]]) -> Doubts:
    return Doubts.of(PoolScores.from_lists(probs, labels, probs))


def test_the_label_is_compared_with_the_best_other_candidate() -> None:
    found = doubts([[0.1, 0.8, 0.3], [0.9, 0.2], [0.2, 0.3, 0.7, 0.1]], [[1, 0, 0], [1, 0], [0, 0, 1, 0]])
    assert found.labelled.tolist() == [0, 0, 2]
    assert found.preferred.tolist() == [1, 1, 1]
    assert found.margin == pytest.approx([0.7, -0.7, -0.4])
    assert found.looks_wrong.tolist() == [True, False, False]


def test_another_candidate_must_be_as_probable_as_labels_are_on_average() -> None:
    """An unclear pool is no wrong label: its candidates are all improbable."""
    found = doubts([[0.1, 0.4], [0.9, 0.0], [0.8, 0.0]], [[1, 0], [1, 0], [1, 0]])
    assert found.margin[0] > 0
    assert not found.looks_wrong.any()


def test_of_several_right_candidates_the_least_probable_counts_and_none_right_is_a_label() -> None:
    probs = [[0.9, 0.1, 0.6], [0.9, 0.3], [0.1, 0.2], [0.4, 0.6]]
    found = doubts(probs, [[1, 1, 0], [0, 0], [0, 0], [1, 1]])
    assert found.labelled.tolist() == [1, -1, -1, 0]
    assert found.labelled_prob == pytest.approx([0.1, 0.1, 0.8, 0.4])
    assert found.preferred.tolist()[:3] == [2, 0, 1]
    assert found.looks_wrong.tolist() == [True, True, False, False]  # of the last, all candidates are right


def test_p_none_is_the_probability_of_a_label_that_none_is_right() -> None:
    scores = PoolScores.from_lists([[0.9, 0.3]], [[0, 0]], [[0.9, 0.3]])
    with_p_none = PoolScores(scores.pool_ids, scores.logit, scores.prob, scores.label, scores.offsets, np.array([0.95]))
    assert Doubts.of(with_p_none).labelled_prob == pytest.approx([0.95])
