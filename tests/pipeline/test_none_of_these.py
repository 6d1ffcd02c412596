"""Pools without a right candidate in whole runs: prepared, trained on, calibrated, evaluated and answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.pool_folders import read_pools
from helpers.runs import small_settings

from icalib.api.runs import load
from icalib.calibration.fitted import AffineMap
from icalib.calibration.none_of_these import MIN_POOLS
from icalib.core.run_tables import PREDICTION_SCHEMA
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.questions import Question
from icalib.data.simulate import simulate
from icalib.metrics.pairs import PoolScores
from icalib.pipeline.finished import FinishedRun, evaluate
from icalib.pipeline.run import RunContext, run

METRICS = {"AUROC_none", "false_accepts@90", "ECE_none"}
LIMIT = 40
SHORT = {"domain_pretraining.max_windows": 30, "domain_pretraining.training.epochs": 1}


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated dialogues, a quarter of whose pools have no right candidate."""
    folder = tmp_path_factory.mktemp("unanswerable")
    simulate(folder / "dialogues.jsonl", num_dialogues=200, seed=5)
    settings = PrepareSettings(num_candidates=4, labelled=0.3, unanswerable=0.25)
    prepare(folder / "dialogues.jsonl", folder / "quarter", settings)
    return folder / "quarter"


@pytest.fixture(scope="module")
def bert(pools: Path, tiny_bert: Path, around: RunContext) -> FinishedRun:
    limit: Any = {"validation": LIMIT, "test": LIMIT}
    return FinishedRun.open(run(small_settings("bert", pools, tiny_bert, limit=limit, **SHORT), around).path)


def test_they_are_predicted_and_measured(bert: FinishedRun) -> None:
    for split in ("validation", "test"):
        result = bert.folder.result[split]
        assert result.keys() >= METRICS
        assert 0 < result["none_rate"] < 1
        assert 0 <= result["AUROC_none"] <= 1
        predictions = bert.folder.predictions(split)
        scores = PoolScores.from_predictions(predictions)
        assert scores.num_pools == result["num_pools"]
        assert result["none_rate"] == pytest.approx((~scores.answerable).mean())
        assert result["R@1"] <= 1
        assert scores.p_none is not None
        by_pool = predictions.group_by("pool_id").aggregate([("p_none", "count_distinct")])
        assert set(by_pool["p_none_count_distinct"].to_pylist()) == {1}


def test_p_none_is_that_of_the_saved_map_and_calibrated_on_validation(bert: FinishedRun) -> None:
    fitted = bert.fitted.none_of_these
    assert fitted is not None
    validation = PoolScores.from_predictions(bert.folder.predictions("validation"))
    p_none = fitted.p_none(validation.logit, validation.offsets)
    np.testing.assert_allclose(validation.p_none, p_none, rtol=1e-9)
    assert p_none.mean() == pytest.approx((~validation.answerable).mean(), abs=1e-5)
    assert fitted.num_answerable + fitted.num_unanswerable == validation.num_pools


def test_candidates_share_what_p_none_leaves(bert: FinishedRun) -> None:
    test = PoolScores.from_predictions(bert.folder.predictions("test"))
    assert test.p_none is not None
    np.testing.assert_allclose([prob.sum() for prob in test.split(test.prob)], 1 - test.p_none, rtol=1e-9)
    assert bert.folder.result["test"]["NLL@pool-softmax"] == pytest.approx(bert.folder.result["test"]["NLL"], rel=1e-6)


def test_with_too_few_such_pools_to_fit_p_none_each_pair_has_a_probability_of_its_own(
    pools: Path, tiny_bert: Path, around: RunContext
) -> None:
    limit: Any = {"validation": 16, "test": LIMIT}
    settings = small_settings("bert", pools, tiny_bert, experiment="few", limit=limit, **SHORT)
    few = FinishedRun.open(run(settings, around).path)
    validation = PoolScores.from_predictions(few.folder.predictions("validation"))
    assert 0 < (~validation.answerable).sum() < MIN_POOLS
    assert isinstance(few.fitted.calibration, AffineMap)
    assert "NLL@pool-softmax" not in few.folder.result["test"]


def some_questions(pools: Path, names: list[str]) -> list[Question]:
    by_id = {pool.pool_id: pool for pool in read_pools(pools, "test")}
    return [Question(id=name, context=by_id[name].context, candidates=by_id[name].candidates) for name in names]


def test_questions_are_answered_with_the_p_none_that_the_run_scored(bert: FinishedRun, pools: Path) -> None:
    test = PoolScores.from_predictions(bert.folder.predictions("test"))
    assert test.p_none is not None
    questions = some_questions(pools, list(test.pool_ids[:5]))
    ranker = load(bert.folder.path)
    found = ranker.predict(questions)
    np.testing.assert_allclose([answer.p_none for answer in found.answers], test.p_none[:5], rtol=1e-3)
    ranked = ranker.rank([turn.model_dump() for turn in questions[0].context], questions[0].candidates)
    assert [one.p_none for one in ranked] == pytest.approx([found.answers[0].p_none] * len(ranked), rel=1e-4)


def test_scored_parquet_files_have_the_p_none_of_pools_and_none_of_pairs(
    bert: FinishedRun, pools: Path, tmp_path: Path, icalib: Any
) -> None:
    test = PoolScores.from_predictions(bert.folder.predictions("test"))
    (question,) = some_questions(pools, list(test.pool_ids[:1]))
    context, candidates = [turn.model_dump() for turn in question.context], list(question.candidates)
    rows, out = tmp_path / "rows", tmp_path / "out"
    rows.mkdir()
    for name, row in (("a", {"candidates": candidates}), ("b", {"candidate": candidates[0]})):
        pq.write_table(pa.Table.from_pylist([{"context": context, **row}]), rows / f"{name}.parquet")
    assert icalib("score", bert.folder.path, rows, "--out", out, "--executor", "local")[0] == 0
    of_pool, of_pair = (pq.read_table(path)["p_none"].to_pylist() for path in sorted(out.glob("part-*.parquet")))
    assert of_pool == pytest.approx([test.p_none[0]] * len(candidates), rel=1e-3)  # type: ignore[index]
    assert of_pair == [None]


def test_the_card_of_an_export_says_that_p_none_is_left_out(bert: FinishedRun, tmp_path: Path, icalib: Any) -> None:
    assert icalib("export", bert.folder.path, "--out", tmp_path / "exported", "--executor", "local")[0] == 0
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "R@1 and MAP leave out pools without a right candidate." in card
    assert "`p_none`" in card


def test_a_run_without_such_pools_has_no_p_none(
    pools: Path, tiny_pools: Path, tiny_bert: Path, around: RunContext
) -> None:
    settings = small_settings("bert", tiny_pools, tiny_bert, **SHORT)
    plain = FinishedRun.open(run(settings, around).path)
    assert "none_of_these" not in json.loads(plain.folder.fitted_path.read_text())
    assert plain.folder.predictions("test").schema == PREDICTION_SCHEMA
    assert not METRICS & plain.folder.result["test"].keys()
    test = PoolScores.from_predictions(plain.folder.predictions("test"))
    found = load(plain.folder.path).predict(some_questions(tiny_pools, list(test.pool_ids[:1])))
    assert "p_none" not in found.answers[0].record()
    shifted = evaluate(plain, pools, LIMIT, around)["test"]  # by the probability of the best candidate
    assert shifted.keys() & METRICS == METRICS - {"ECE_none"}
