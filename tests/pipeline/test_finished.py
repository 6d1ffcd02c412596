"""Finished runs used again: scored, evaluated and timed on other pools, and answering questions."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.pool_folders import read_pools, seal
from helpers.runs import small_settings

from icalib.api.results import Run
from icalib.core.errors import DataError, RunFolderError, SettingError
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import PREDICTION_SCHEMA
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.simulate import simulate
from icalib.pipeline.evaluation import prediction_table
from icalib.pipeline.finished import FinishedRun, evaluate, iter_predictions
from icalib.pipeline.guarantees import Guarantees
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import RunContext, run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def teacher(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    """Two views, MC dropout, and a calibrator."""
    changes = {"domain_pretraining": None, "calibration": "temperature"}
    return FinishedRun.open(run(small_settings("icast-teacher", tiny_pools, tiny_bert, **changes), around).path)


@pytest.fixture(scope="module")
def bm25(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    return FinishedRun.open(run(small_settings("bm25", tiny_pools, tiny_bert), around).path)


@pytest.fixture(scope="module")
def elsewhere(teacher: FinishedRun, bm25: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of both runs, on another machine so to speak."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(teacher.folder.path, folder / "teacher")
    shutil.copytree(bm25.folder.path, folder / "bm25")
    return folder


@pytest.fixture(scope="module")
def other_pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    simulate(folder / "dialogues.jsonl", num_dialogues=50, seed=9)
    prepare(folder / "dialogues.jsonl", folder / "counter", PrepareSettings(num_candidates=3))
    return folder / "counter"


@pytest.mark.parametrize("name", ["teacher", "bm25"])
def test_a_copy_of_a_run_predicts_what_the_run_did(
    name: str, elsewhere: Path, tiny_pools: Path, around: RunContext
) -> None:
    copy = FinishedRun.open(elsewhere / name)
    again = pa.concat_tables(iter_predictions(copy, tiny_pools, "test", 12, around))
    assert again.schema == PREDICTION_SCHEMA
    assert repr(again.to_pydict()) == repr(copy.folder.predictions("test").to_pydict())  # NaNs too


def without_labels(pools: Path, folder: Path) -> Path:
    shutil.copytree(pools, folder)
    table = pq.read_table(folder / "test.parquet")
    place = table.schema.get_field_index("label")
    unknown = pa.array([-1] * table.num_rows, pa.int32())
    pq.write_table(table.set_column(place, table.schema.field(place), unknown), folder / "test.parquet")
    seal(folder)
    return folder


def test_pools_without_labels_can_be_scored_but_not_measured(
    teacher: FinishedRun, other_pools: Path, around: RunContext, tmp_path: Path, icalib: Command
) -> None:
    data, out = without_labels(other_pools, tmp_path / "unlabelled"), tmp_path / "scores.parquet"
    where = ("--data", data, "--limit", 5, "--out", out, "--runs", around.runs, "--executor", "local")
    icalib("score", teacher.folder.path, *where)
    scored = pq.read_table(out)
    assert scored.num_rows == 5 * 3
    assert set(scored["label"].to_pylist()) == {-1}
    with pytest.raises(DataError, match="no pool has a known label"):
        evaluate(teacher, data, 5, around)
    assert not teacher.folder.shift_path("unlabelled").exists()


def test_runs_are_evaluated_with_their_own_threshold_once(
    teacher: FinishedRun, bm25: FinishedRun, other_pools: Path, around: RunContext
) -> None:
    for finished in (teacher, bm25):
        result = evaluate(finished, other_pools, 6, around)
        assert result["test"]["num_pools"] == 6
        assert result["test"]["threshold"] == finished.fitted.decision_threshold
        assert (result["data"], result["trained_on"]) == (str(other_pools), str(finished.config.data))
        folder = finished.folder.shift_path("counter")
        metrics = pq.read_table(folder / "metrics.parquet").to_pylist()
        assert {row["metric"]: row["value"] for row in metrics}["R@1"] == result["test"]["R@1"]
        assert pq.read_table(folder / "predictions.parquet").num_rows == 6 * 3
        written = (folder / "result.json").stat().st_mtime_ns
        assert evaluate(finished, other_pools, 6, around) == result
        assert (folder / "result.json").stat().st_mtime_ns == written
        assert evaluate(finished, other_pools, 4, around)["test"]["num_pools"] == 4


def test_the_command_line_evaluates_and_reports_shift(
    teacher: FinishedRun, other_pools: Path, around: RunContext, icalib: Command, tmp_path: Path
) -> None:
    _, out, err = icalib(
        "evaluate", teacher.folder.path, "--data", other_pools, "--limit", 6, "--json", "--runs", around.runs,
        "--executor", "local",
    )  # fmt: skip
    assert json.loads(out) == teacher.folder.shifts()[0]
    assert "tested on counter" in err
    assert json.loads(icalib("evaluate", teacher.folder.path, "--json")[1]) == teacher.folder.result
    assert icalib("report", teacher.folder.path)[0] == 0
    assert "tested on counter" in (teacher.folder.path / "report.html").read_text()


def test_the_command_line_names_a_copied_run_and_pools_of_other_sizes(
    elsewhere: Path, other_pools: Path, around: RunContext, icalib: Command, tmp_path: Path
) -> None:
    copy = shutil.copytree(elsewhere / "teacher", tmp_path / "renamed")
    on = ("--data", other_pools, "--limit", 6, "--runs", around.runs, "--executor", "local")
    for options in ((), on, on):  # the last one is read from the folder
        code, out, err = icalib("evaluate", copy, *options, "--json")
        assert (code, json.loads(out)["run"]) == (0, str(copy))
        assert ("6 of 6 pools have another number of candidates than the run's pools (4)" in err) == bool(options)
    moved = Path(shutil.move(copy, tmp_path / "moved"))
    assert json.loads(icalib("evaluate", moved, *on, "--json")[1])["run"] == str(moved)
    assert {one["run"] for one in (Run(moved).result, *RunFolder(moved).shifts())} == {str(moved)}


def write_questions(path: Path, pools: Path) -> list[str]:
    """Test pools with contexts of full length as questions; returns their ids."""
    lines = [
        {
            "id": f"q-{pool.pool_id}",
            "context": [{"speaker": turn.speaker, "text": turn.text} for turn in pool.context],
            "candidates": pool.candidates,
        }
        for pool in read_pools(pools, "test")
        if len(pool.context) == read_pool_set(pools).context_turns
    ]
    assert len(lines) > 5
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return [str(line["id"]) for line in lines]


def test_questions_are_answered_where_the_run_is_sure(
    teacher: FinishedRun, elsewhere: Path, tiny_pools: Path, tmp_path: Path, icalib: Command
) -> None:
    ids = write_questions(tmp_path / "q.jsonl.gz", tiny_pools)
    promise = ("--max-error", 0.97, "--confidence", 0.6)
    _, out, err = icalib("predict", elsewhere / "teacher", tmp_path / "q.jsonl.gz", *promise, "--sets", 0.8)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["id"] for answer in answers] == ids
    threshold = Guarantees(teacher.folder).promise(0.97, 0.6).threshold
    assert threshold is not None
    for answer in answers:
        best = int(np.argmax(answer["probs"]))
        assert answer["prob"] == answer["probs"][best]
        assert answer["abstained"] == (answer["prob"] < threshold)
        assert answer["answer"] == (None if answer["abstained"] else best)
        assert (answer["text"] is None) == answer["abstained"]
        assert best in answer["set"]
    assert f"{sum(not answer['abstained'] for answer in answers)} of {len(ids)} answered" in err
    mean_size = np.mean([len(answer["set"]) for answer in answers])
    assert f"sets have {mean_size:.1f} candidates on average" in err


def test_answers_are_not_written_as_another_kind_of_file(elsewhere: Path, tmp_path: Path, icalib: Command) -> None:
    code, _, err = icalib(
        "predict", elsewhere / "teacher", tmp_path / "q.jsonl", "--out", tmp_path / "answers.jsonl.gz"
    )
    assert code == 2
    assert "JSONL is written. Let its name end in .jsonl" in err


def test_models_that_give_no_numbers_answer_nothing(teacher: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_numbers(*arguments: Any) -> pa.Table:
        table = prediction_table(*arguments)
        index = table.column_names.index("logit")
        return table.set_column(index, table.field(index), pa.array([math.nan] * len(table)))

    monkeypatch.setattr("icalib.pipeline.finished.prediction_table", without_numbers)
    with pytest.raises(RunFolderError, match="give no numbers"):
        LoadedRanker.load(teacher.folder.path).predict([{"context": ["Hi"], "candidates": ["a", "b"]}])


def test_what_cannot_be_used_is_refused(teacher: FinishedRun, bm25: FinishedRun, elsewhere: Path) -> None:
    with pytest.raises(SettingError, match="no model"):
        bm25.load_members()
    old = elsewhere / "old"
    shutil.copytree(elsewhere / "teacher", old)
    (old / "members.json").unlink()
    (old / "files.json").unlink()
    with pytest.raises(RunFolderError, match="--fresh"):
        FinishedRun.open(old)
