from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from unit.metrics.made_predictions import simulated_table

from icalib.calibration.calibrator import AbstractCalibrator, Platt
from icalib.calibration.fitted import FittedMap, FocalInverseMap, pair_logit, prob_logit
from icalib.calibration.post_hoc import post_hoc_metrics
from icalib.metrics.calibration import brier, ece, nll
from icalib.metrics.pairs import PoolScores


def overconfident(num_pools: int, *, seed: int) -> pa.Table:
    """Predictions of a model whose logits are three times too large and shifted by log 9."""
    table = simulated_table(num_pools, seed=seed)
    prob = expit(3 * table["logit"].to_numpy() + np.log(9))
    return table.set_column(table.schema.get_field_index("prob"), "prob", pa.array(prob))


def fit_on(scores: PoolScores, config: AbstractCalibrator.Config) -> FittedMap:
    return config.build().fit(pair_logit(scores.prob, scores.logit), scores.label)


@pytest.fixture(scope="module")
def validation() -> pa.Table:
    return overconfident(300, seed=1)


@pytest.fixture(scope="module")
def held_out() -> pa.Table:
    return overconfident(300, seed=2)


def test_the_values_are_those_of_a_map_fitted_on_validation(validation: pa.Table, held_out: pa.Table) -> None:
    rows = post_hoc_metrics(validation, held_out, train_prior=0.5).to_pylist()
    values = {row["metric"]: row["value"] for row in rows}
    assert values["NLL@null"] == nll(*(held_out[name].to_numpy() for name in ("prob", "label")))
    fitted = fit_on(PoolScores.from_predictions(validation), Platt.Config())
    scores = PoolScores.from_predictions(held_out)
    prob = fitted.apply(prob_logit(scores.prob))
    for metric, measure in (("ECE", ece), ("NLL", nll), ("Brier", brier)):
        assert values[f"{metric}@platt"] == pytest.approx(measure(prob, scores.label))
    best = [one.argmax() + start for one, start in zip(scores.split(prob), scores.offsets, strict=False)]
    assert values["ECE_top1@platt"] == pytest.approx(ece(prob[best], scores.label[best]))
    assert values["NLL@platt"] < nll(scores.prob, scores.label) / 2
    assert values["ECE@platt"] < 0.03 < 0.15 < ece(scores.prob, scores.label)


def test_without_training_there_is_no_prior_to_shift(validation: pa.Table, held_out: pa.Table) -> None:
    metrics = post_hoc_metrics(validation, held_out, train_prior=None)["metric"].to_pylist()
    assert metrics == [
        f"{m}@{name}"
        for name in ("null", "temperature", "platt", "isotonic", "pool-softmax")
        for m in ("ECE", "ECE_top1", "NLL", "Brier")
    ]


def test_the_prior_shift_of_a_focal_model_inverts_the_loss_first(validation: pa.Table, held_out: pa.Table) -> None:
    rows = post_hoc_metrics(validation, held_out, train_prior=0.5, focal_gamma=2.0).to_pylist()
    values = {row["metric"]: row["value"] for row in rows}
    scores = PoolScores.from_predictions(held_out)
    logit = prob_logit(scores.prob)
    prob = FocalInverseMap(gamma=2.0, offset=-np.log(9)).apply(logit)
    assert values["NLL@prior-shift"] == pytest.approx(nll(prob, scores.label))
    assert values["NLL@prior-shift"] != pytest.approx(nll(expit(logit - np.log(9)), scores.label), rel=0.01)


def test_a_softmax_is_measured_only_where_it_is_known_that_a_candidate_is_right(
    validation: pa.Table, held_out: pa.Table
) -> None:
    label = validation["label"].to_numpy().copy()
    label[:10] = 0  # the first pool has no right candidate, and there is no p_none
    some = validation.set_column(validation.schema.get_field_index("label"), "label", pa.array(label))
    for table, expected in ((validation, True), (some, False)):
        names = post_hoc_metrics(table, held_out, train_prior=None)["metric"].to_pylist()
        assert ("NLL@pool-softmax" in names) == expected
