"""Metrics of telling unanswerable pools apart, against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from unit.metrics.made_predictions import prediction_table, simulated_table

from icalib.metrics.answerability import RECALL
from icalib.metrics.pairs import PoolScores
from icalib.metrics.selective import RankedPools, accepted_errors, auroc
from icalib.metrics.summary import summarise

CONDITIONAL = {"AUROC_none", "false_accepts@90", "ECE_none", "none_rate"}


def values_of(table: Any) -> dict[str, float]:
    summary = summarise(table, threshold=0.5, seed=0, num_bootstrap=20)
    return dict(zip(summary["metric"].to_pylist(), summary["value"].to_pylist(), strict=True))


@given(st.integers(0, 10_000), st.integers(4, 60))
def test_golden_values(seed: int, num_pools: int) -> None:
    rng = np.random.default_rng(seed)
    is_none = rng.integers(0, 2, size=num_pools)
    is_none[:2] = 0, 1
    confidence = rng.permutation(num_pools) / num_pools  # without ties
    pools = RankedPools.by(confidence, is_none).blocks()
    assert auroc(pools) == pytest.approx(roc_auc_score(1 - is_none, confidence))
    accepted, recall, _ = roc_curve(1 - is_none, confidence, drop_intermediate=False)
    assert accepted_errors(pools, RECALL) == pytest.approx(accepted[recall >= 0.9 - 1e-9].min())


def test_tied_pools_are_accepted_together() -> None:
    pools = RankedPools.by(np.full(4, 0.5), np.array([0.0, 0, 1, 1])).blocks()
    assert accepted_errors(pools, RECALL) == 1  # one threshold accepts all or none
    assert auroc(pools) == 0.5


def test_ranking_is_measured_on_answerable_pools_and_answering_the_others_is_an_error() -> None:
    answerable = simulated_table(40, seed=1)
    pools = PoolScores.from_predictions(answerable)
    logits = [pool.tolist() for pool in pools.split(pools.logit)]
    labels = [pool.tolist() for pool in pools.split(pools.label)]
    mixed = prediction_table(logits + [[9.0, -1.0]] * 10, labels + [[0, 0]] * 10)
    alone, both = values_of(answerable), values_of(mixed)
    for name in ("R@1", "R@2", "R@5", "MAP"):
        assert both[name] == pytest.approx(alone[name])
    assert both["AURC"] > alone["AURC"]  # the ten are answered first, and wrongly
    assert both["num_pools"] == 50
    assert both["none_rate"] == pytest.approx(0.2)
    assert both["AUROC_none"] == 0
    assert both["false_accepts@90"] == 1
    assert CONDITIONAL - both.keys() == {"ECE_none"}  # p_none is needed for its calibration


def test_p_none_is_the_confidence_where_there_is_one() -> None:
    table = prediction_table([[3.0, 1.0], [2.0, 0.0], [5.0, 0.0]], [[1, 0], [0, 0], [0, 0]])
    assert values_of(table)["AUROC_none"] == 0.5  # by the probability of the best candidate
    column = np.repeat([0.1, 0.7, 0.9], 2)
    found = values_of(table.append_column("p_none", [column]))
    assert found["AUROC_none"] == 1
    assert found["false_accepts@90"] == 0
    assert found["ECE_none"] == pytest.approx((0.1 + 0.3 + 0.1) / 3)
