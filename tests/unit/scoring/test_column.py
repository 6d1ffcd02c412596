from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from icalib.scoring.column import Column, scores_of_columns
from icalib.uncertainty.estimator import MCDropout


def test_a_softmax_over_a_pool_is_that_of_its_mean_logits() -> None:
    mean_SN = np.array([[4.0, 1.0, 0.0, -2.0, 3.0], [0.0, 2.0, -1.0, 0.0, -3.0]])
    names = {
        "pool_id": ["a"] * 3 + ["b"] * 2,
        "row": [0] * 3 + [1] * 2,
        "candidate": [0, 1, 2, 0, 1],
        "label": [1, 0, 0, 0, 1],
    }
    columns = {"plain": Column(mean_SN, np.zeros_like(mean_SN))}
    found = scores_of_columns(names, columns, MCDropout.Config(num_passes=2).build(), softmax=True)
    mean_N = mean_SN.mean(0)
    assert found["prob_mean"].to_numpy() == pytest.approx([*softmax(mean_N[:3]), *softmax(mean_N[3:])])
