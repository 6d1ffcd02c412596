"""Heads with posteriors, ensembles and calibrators in whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from helpers.chains import sample_chains
from helpers.runs import Silent, run_context, small_settings
from scipy.special import expit

from icalib.core.run_folder import RunFolder
from icalib.core.seeding import child_seed
from icalib.heads.polya_gamma import PolyaGammaHead, chain_problem
from icalib.models.checkpoint import read_posterior
from icalib.models.ranker import load_ranker
from icalib.pipeline.evaluation import Fitted
from icalib.pipeline.run import run
from icalib.scoring.column import pool_sizes


class Runs:
    """Runs of one folder, so that they share stages."""

    def __init__(self, folder: Path, data: Path, backbone: Path) -> None:
        self._folder, self._data, self._backbone = folder, data, backbone

    def __call__(self, method: str, experiment: str = "test", **changes: Any) -> tuple[RunFolder, Silent]:
        listener = Silent()
        settings = small_settings(method, self._data, self._backbone, experiment=experiment, **changes)
        return run(settings, run_context(self._folder, listener)), listener


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_pools: Path, tiny_bert: Path) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"), tiny_pools, tiny_bert)


@pytest.fixture(scope="module")
def bert(make: Runs) -> RunFolder:
    return make("bert", calibration=None)[0]


def columns(run: RunFolder, *names: str) -> list[np.ndarray]:
    table = run.predictions("test")
    return [table[name].to_numpy() for name in names]


def test_a_random_feature_head_predicts_from_its_posterior_in_one_pass(bert: RunFolder, make: Runs) -> None:
    gpf, listener = make("gpf-bert", **{"head.num_features": 64, "calibration": None})
    assert listener.stages["domain-pretraining"]  # all methods share it
    assert read_posterior(gpf.checkpoint_path / "cross")["factor"].shape == (64, 64)
    logit, prob, logit_var, information, passes = columns(
        gpf, "logit", "prob", "logit_var", "mutual_information", "num_passes"
    )
    assert (logit_var > 0).all()
    assert (information > 0).all()
    assert set(passes) == {1}
    np.testing.assert_allclose(expit(logit), prob)  # an uncertain logit is ranked by its mean probability
    (scores,) = (Path(stage["path"]) for stage in gpf.stages if stage["name"] == "test/scores")
    mean = np.concatenate([pq.read_table(path)["logit_mean"].to_numpy() for path in sorted(scores.glob("scores-*"))])
    assert (np.abs(prob - 0.5) < np.abs(expit(mean) - 0.5)).all()  # the mean of σ(f) is nearer to ½ than σ of the mean


def test_gibbs_chains_run_by_ray_are_those_of_one_process(bert: RunFolder, make: Runs) -> None:
    pg, _ = make("pg-drr", **{"head.num_chains": 12, "head.support.size": 16, "head.num_steps": 3})
    state = read_posterior(pg.checkpoint_path / "cross")
    head = load_ranker(pg.checkpoint_path / "cross").answer_head
    assert isinstance(head, PolyaGammaHead)
    alone = sample_chains(chain_problem(state), num_chains=12, num_steps=20, seed=child_seed(1000, "posterior"))
    assert torch.equal(state["omega"], alone.omega_SN)
    assert state["omega"].shape == (12, 16)
    assert (columns(pg, "logit_var")[0] > 0).all()


def test_an_ensemble_averages_its_members_and_shares_the_first_with_bert(bert: RunFolder, make: Runs) -> None:
    ensemble, listener = make("ensemble", **{"regime.num_members": 2, "calibration": None})
    assert listener.stages["teacher"]  # bert's
    assert not listener.stages["member-1/teacher"]
    stages = {stage["name"]: Path(stage["path"]) for stage in ensemble.stages}
    probs = [
        np.concatenate([pq.read_table(path)["prob_mean"].to_numpy() for path in sorted(stages[name].glob("scores-*"))])
        for name in ("test/scores", "test/scores-1")
    ]
    assert not np.allclose(*probs)
    np.testing.assert_allclose(columns(ensemble, "prob")[0], np.mean(probs, axis=0), rtol=1e-12)
    assert (columns(ensemble, "mutual_information")[0] > 0).any()
    for member in ("member-0", "member-1"):
        load_ranker(ensemble.checkpoint_path / member / "cross")


@pytest.mark.parametrize("name", ["platt", "pool-softmax"])
def test_a_calibrator_changes_probabilities_but_no_ranking(bert: RunFolder, make: Runs, name: str) -> None:
    calibrated, _ = make("bert", name, calibration=name)
    raw_logit, raw_prob = columns(bert, "logit", "prob")
    logit, prob, row = columns(calibrated, "logit", "prob", "pool_id")
    np.testing.assert_array_equal(logit, raw_logit)
    fitted = Fitted.load(calibrated.fitted_path)
    assert fitted.calibration is not None
    np.testing.assert_allclose(prob, fitted.calibration.apply(logit, pool_sizes(row)), rtol=1e-9)
    assert not np.allclose(prob, raw_prob)
    # Every run is also measured with each calibrator, and without.
    assert bert.result["test"][f"NLL@{name}"] == pytest.approx(calibrated.result["test"]["NLL"], rel=1e-6)
    assert calibrated.result["test"]["NLL@null"] == pytest.approx(bert.result["test"]["NLL"], rel=1e-6)


def test_icast_takes_its_gain_from_a_posterior(make: Runs) -> None:
    icast, _ = make("icast-gpf", **{"head.num_features": 64, "regime.rule.positive_threshold": 0.7})
    gain, passes = columns(icast, "gain", "num_passes")
    assert set(passes) == {1}
    # One pass has no noise: where no intent is predicted both views are the same input, and Δ is 0.
    intents = icast.predicted_intents("test").to_pylist()
    without = {row["pool_id"] for row in intents} - {row["pool_id"] for row in intents if row["intents"]}
    same = np.isin(icast.predictions("test")["pool_id"].to_pylist(), list(without))
    assert np.array_equal(gain[same], np.zeros(same.sum()))
    assert np.isfinite(gain).all()
    (summary,) = icast.round_summaries()
    assert summary.num_pools_selected > 0
    assert icast.predicted_intents("test") is not None
