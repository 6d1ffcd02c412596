from __future__ import annotations

from pathlib import Path

import pytest

from icalib.core.errors import RunFolderError
from icalib.core.run_folder import METRIC_SCHEMA, RUN_VERSION, TRAINING_SCHEMA, RoundSummary, RunFolder

SUMMARY = RoundSummary(
    round=1, num_pools_scored=2, num_pools_selected=1, num_pairs_selected=3, num_pools_by_rule={"confident": 1},
    share_with_intents=0.0, pool_accuracy=None, pair_accuracy=None, base_accuracy=None, confusion={},
    gain_histogram_edges=[0.0, 1.0], gain_histogram_counts=[1.0],
)  # fmt: skip


def finished_run(path: Path) -> RunFolder:
    run = RunFolder(path)
    run.write_config({"method": "bert", "name": "ä"})
    run.write_json("result.json", {"method": "bert", "test": {}})
    return run


def test_a_written_run_opens_with_its_config_and_tables(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "bert-desk-0.1-s1")
    table = METRIC_SCHEMA.empty_table()
    run.write_table("metrics.parquet", table)
    opened = RunFolder.open(run.path)
    assert opened.config == {"version": RUN_VERSION, "method": "bert", "name": "ä"}
    assert opened.result == {"method": "bert", "test": {}}
    assert opened.metrics().schema == METRIC_SCHEMA
    assert opened.name == "bert-desk-0.1-s1"


def test_missing_tables_are_empty(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    assert run.training().schema == TRAINING_SCHEMA
    assert run.predicted_intents("test") is None
    assert run.round_summaries() == []


def test_rounds_come_in_order_of_their_numbers(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    for number in (10, 2, 1):
        run.write_json(f"rounds/{number}/summary.json", SUMMARY.model_copy(update={"round": number}).model_dump())
    assert [summary.round for summary in run.round_summaries()] == [1, 2, 10]


def test_another_folder_an_unfinished_run_and_another_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not a run folder"):
        RunFolder.open(tmp_path)
    run = RunFolder(tmp_path)
    run.write_config({})
    with pytest.raises(RunFolderError, match="not finished"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.yaml").write_text("version: 99\n")
    run.write_json("result.json", {})
    with pytest.raises(RunFolderError, match="version 99"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "", "a: \xff"])
def test_an_invalid_config_is_refused_with_file_and_fix(tmp_path: Path, text: str) -> None:
    run = finished_run(tmp_path)
    (tmp_path / "config.yaml").write_bytes(text.encode("latin-1"))
    for read in (lambda: RunFolder.open(tmp_path), lambda: run.config):
        with pytest.raises(RunFolderError, match=r"config\.yaml.*--fresh"):
            read()


def test_a_bad_field_of_a_summary_is_refused_by_file_and_name(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.write_json("rounds/1/summary.json", {**SUMMARY.model_dump(), "num_pools_scored": "many"})
    with pytest.raises(RunFolderError, match=r"summary\.json: num_pools_scored.*'many'.*--fresh"):
        run.round_summaries()
