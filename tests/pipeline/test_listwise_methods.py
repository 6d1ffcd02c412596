"""JM and GRN in whole runs: listwise training, softmax probabilities, argmax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.pool_folders import read_pools
from helpers.runs import CPU, Silent, run_context, small_settings

from icalib.core.errors import DataError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.data.questions import Question
from icalib.pipeline.evaluation import Fitted
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import run
from icalib.pipeline.score_pairs import pairs_job
from icalib.serving.protocols import TextsRequest

SMALL: dict[str, Any] = {
    "domain_pretraining.max_windows": 30,
    "domain_pretraining.training.epochs": 1,
    "encoder.budget": {"max_context_tokens": 48, "max_candidate_tokens": 14},
}


@pytest.fixture(scope="module", params=["jm", "grn"])
def finished(
    request: pytest.FixtureRequest, tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory
) -> RunFolder:
    runs = tmp_path_factory.mktemp(request.param)
    settings = small_settings(request.param, tiny_pools, tiny_bert, **SMALL)
    return run(settings, run_context(runs, Silent()))


def test_probabilities_of_each_pool_sum_to_one_and_the_best_one_is_the_answer(finished: RunFolder) -> None:
    table = finished.predictions("test")
    prob = table["prob"].to_numpy().reshape(12, 4)
    np.testing.assert_allclose(prob.sum(1), 1, rtol=1e-9)
    test = finished.result["test"]
    assert test["F1"] == test["P"] == test["R"] == test["R@1"]
    assert test["NLL@prior-shift"] == pytest.approx(test["NLL@null"], rel=1e-6)  # a softmax knows its pool's size
    assert Fitted.load(finished.fitted_path).decision == "argmax"
    assert {stage["name"] for stage in finished.stages} >= {"domain-pretraining", "teacher", "test/scores"}


def test_questions_of_any_number_of_candidates_are_answered_as_the_run_scored(
    finished: RunFolder, tiny_pools: Path
) -> None:
    ranker = LoadedRanker.load(finished.path)
    pools = {pool.pool_id: pool for pool in read_pools(tiny_pools, "test")}
    table = finished.predictions("test")
    names = list(dict.fromkeys(table["pool_id"].to_pylist()))[:3]
    questions = [Question(id=n, context=pools[n].context, candidates=pools[n].candidates) for n in names]
    more = Question(id="more", context=questions[0].context, candidates=questions[0].candidates * 2)
    *same, doubled = ranker.predict([*questions, more]).answers
    expected = [p for p, n in zip(table["prob"].to_pylist(), table["pool_id"].to_pylist(), strict=True) if n in names]
    np.testing.assert_allclose([p for answer in same for p in answer.probs], expected, rtol=1e-4)
    assert sum(doubled.probs) == pytest.approx(1)
    assert len(doubled.probs) == 8


def test_one_candidate_alone_is_refused_as_it_has_no_probability(finished: RunFolder, tmp_path: Path) -> None:
    pq.write_table(pa.table({"context": ["Hi", "Hi"], "candidates": [["a", "b"], ["a"]]}), tmp_path / "rows.parquet")
    job = pairs_job(finished.path, tmp_path / "rows.parquet", 10)
    with pytest.raises(DataError, match=r"rows.parquet, line 2.*found one candidate"):
        job.compute_shard(0, job.shards()[0], tmp_path, CPU)
    with pytest.raises(SettingError, match="one alone has no probability"):
        TextsRequest(query="Hi", texts=["a"]).check(FinishedRun.open(finished.path))
    TextsRequest(query="Hi", texts=["a", "b"]).check(FinishedRun.open(finished.path))


def test_a_file_of_pairs_is_refused_as_they_have_no_probability(finished: RunFolder, tmp_path: Path) -> None:
    pq.write_table(pa.table({"context": ["Hi"], "candidate": ["a"]}), tmp_path / "rows.parquet")
    with pytest.raises(SettingError, match="probabilities to whole pools"):
        pairs_job(finished.path, tmp_path / "rows.parquet", 10)
