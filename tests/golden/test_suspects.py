"""Labels that look wrong beside those of cleanlab 2.9.0, whose values are written here: it needs seconds to import.

cleanlab has a threshold for each class. It was given every pool once for each rotation of its candidates, which makes
them equal: `find_label_issues(filter_by="confident_learning")` then says the same of each rotation.
"""

from __future__ import annotations

import numpy as np
import pytest

from icalib.labelling.suspects import Doubts
from icalib.metrics.pairs import PoolScores

ISSUES = [7, 8, 11, 12, 18, 22, 26, 30, 31, 37, 38, 41, 42, 43, 47, 49, 50, 51, 52]
NORMALIZED_MARGINS = [0.7595, 0.595904, 0.606607, 0.7585, 0.433, 0.767768, 0.8935, 0.4415]
"""Of the first pools, by `get_label_quality_scores(method="normalized_margin")`: (1 − margin) / 2."""
WORST = [49, 26, 42, 51, 47, 22, 38, 41, 30, 33, 11, 50]


def test_the_same_labels_look_wrong_as_to_cleanlab() -> None:
    rng = np.random.default_rng(5)
    num_pools, size = 60, 4
    label = rng.integers(size, size=num_pools)
    logit = rng.normal(size=(num_pools, size))
    logit[np.arange(num_pools), label] += 1.5
    wrong = rng.choice(num_pools, 9, replace=False)
    label[wrong] = (label[wrong] + 1) % size
    prob = np.exp(logit)
    prob = (prob / prob.sum(1, keepdims=True)).round(3)
    prob /= prob.sum(1, keepdims=True)
    found = Doubts.of(PoolScores.from_lists(logit.tolist(), np.eye(size, dtype=int)[label].tolist(), prob.tolist()))
    assert np.flatnonzero(found.looks_wrong).tolist() == ISSUES
    assert ((1 - found.margin) / 2)[: len(NORMALIZED_MARGINS)] == pytest.approx(NORMALIZED_MARGINS, abs=1e-6)
    assert np.argsort(-found.margin, kind="stable")[: len(WORST)].tolist() == WORST
