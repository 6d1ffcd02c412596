from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damage import DAMAGES, Damage

from icalib.core.errors import DamagedFileError, RunFolderError, SettingError
from icalib.core.run_folder import RUN_VERSION, RunFolder
from icalib.core.run_tables import INTENT_SCHEMA, METRIC_SCHEMA, PREDICTION_SCHEMA, TRAINING_SCHEMA, RoundSummary

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


def test_a_written_run_opens_with_its_config_and_tables_of_which_missing_ones_are_empty(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "bert-desk-0.1-s1")
    run.write_table("metrics.parquet", METRIC_SCHEMA.empty_table())
    opened = RunFolder.open(run.path)
    assert opened.config == {"version": RUN_VERSION, "method": "bert", "name": "ä"}
    assert opened.result == {"method": "bert", "test": {}}
    assert opened.name == "bert-desk-0.1-s1"
    assert (opened.metrics().schema, opened.training().schema) == (METRIC_SCHEMA, TRAINING_SCHEMA)
    assert opened.predicted_intents("test") is None
    assert opened.round_summaries() == []
    with pytest.raises(SettingError, match="Choose validation or test"):
        opened.predictions("train")


def test_copies_beside_rounds_are_no_rounds(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    for name in ("1", "10", "2", "1 2", "1.bak"):
        run.write_json(f"rounds/{name}/summary.json", SUMMARY.model_dump())
    assert [folder.name for folder in run.round_folders] == ["1", "2", "10"]


@pytest.mark.parametrize("name", ["report.html", "shift", "tb/round_00"])
def test_links_where_icalib_would_write_are_refused(tmp_path: Path, name: str) -> None:
    run = finished_run(tmp_path / "run")
    (tmp_path / "precious").write_text("")
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(RunFolderError, match=r"is a link, by which icalib would write outside of"):
        RunFolder.open(run.path)


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


def complete_run(path: Path) -> RunFolder:
    """A finished run folder with a file of each kind."""
    run = RunFolder(path)
    run.write_config({"method": "bert", "data": "/pools", "settings": {"epochs": 2}})
    run.write_json("provenance.json", {"context_turns": 4, "packages": {"torch": "2"}})
    run.write_json("stages.json", [{"name": "teacher", "digest": "a" * 16, "reused": False, "seconds": 1.5}])
    run.write_json("members.json", [{"checkpoint": "checkpoints/final", "estimator": {"target": "x"}}])
    run.write_json("fitted.json", {"decision_threshold": 0.5})
    run.write_json("rounds/1/summary.json", SUMMARY.model_dump())
    curve = {"stage": "teacher", "round": 0, "split": "train", "step": 1, "epoch": 0, "tag": "loss/total", "value": 0.5}
    run.write_table("training.parquet", pa.Table.from_pylist([curve] * 50, schema=TRAINING_SCHEMA))
    metric = {"split": "test", "metric": "R@1", "value": 0.5, "low": 0.4, "high": 0.6}
    run.write_table("metrics.parquet", pa.Table.from_pylist([metric] * 50, schema=METRIC_SCHEMA))
    pair = {name: 1 for name in PREDICTION_SCHEMA.names} | {"pool_id": "p1", "view": "plain"}
    for split in ("validation", "test"):
        run.write_table(f"predictions/{split}.parquet", pa.Table.from_pylist([pair] * 50, schema=PREDICTION_SCHEMA))
    intents = {"pool_id": "p1", "utterance": 0, "intents": ["FD"]}
    run.write_table("predictions/test_intents.parquet", pa.Table.from_pylist([intents] * 50, schema=INTENT_SCHEMA))
    (run.checkpoint_path).mkdir(parents=True)
    (run.checkpoint_path / "model.safetensors").write_bytes(bytes(range(256)) * 8)
    shift = RunFolder(run.shift_path("counter"))
    shift.write_table("predictions.parquet", pa.Table.from_pylist([pair] * 50, schema=PREDICTION_SCHEMA))
    shift.finish({"data": "/counter", "test": {"R@1": 0.4}})
    run.finish({"method": "bert", "test": {"R@1": 0.5}})
    return run


def read_everything(path: Path) -> None:
    """Read what reports and predictions read."""
    run = RunFolder.open(path)
    run.check(checkpoints=True)
    run.round_summaries(), run.training().to_pylist(), run.metrics().to_pylist()
    for split in ("validation", "test"):
        run.predictions(split).to_pylist()
    for table in (run.predicted_intents("test"), run.shift_predictions("counter")):
        table is not None and table.to_pylist()
    run.result["test"], run.config["data"], [stage["name"] for stage in run.stages]
    [(member, estimator) for member, estimator in run.members], [shift["data"] for shift in run.shifts()]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_refused_with_file_and_fix(tmp_path: Path, damage: Damage) -> None:
    run = complete_run(tmp_path / "run")
    read_everything(run.path)
    names = [path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file()]
    assert len(names) == 17
    for name in names:
        shutil.copytree(run.path, tmp_path / "copy")
        damage(tmp_path / "copy" / name)
        unnoticed = damage is DAMAGES["delete"] and name.endswith(("files.json", "shift/counter/result.json"))
        with nullcontext() if unnoticed else pytest.raises(RunFolderError, match=r"copy.*(again|wrote|icalib run)"):
            read_everything(tmp_path / "copy")
        shutil.rmtree(tmp_path / "copy")


def test_recorded_files_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    run = complete_run(tmp_path / "run")
    (tmp_path / "mine.txt").write_text("keep")
    for name in ("../mine.txt", str(tmp_path / "mine.txt")):
        run.write_json("files.json", {"files": {name: {"size": 0, "sha256": ""}}})
        with pytest.raises(RunFolderError, match=r"files\.json.*is not a file in this folder"):
            RunFolder.open(run.path)


def test_a_table_without_a_column_or_with_another_type_is_damaged(tmp_path: Path) -> None:
    whole, path, folder = METRIC_SCHEMA.empty_table(), tmp_path / "metrics.parquet", RunFolder(tmp_path)
    pq.write_table(whole.append_column("more", pa.array([], pa.int32())), path)
    assert folder.metrics().num_rows == 0
    for name in METRIC_SCHEMA.names:
        without = whole.drop_columns([name])
        for wrong in (without, without.append_column(name, pa.array([], pa.int32()))):
            pq.write_table(wrong, path)
            with pytest.raises(DamagedFileError, match=f"column `{name}`"):
                folder.metrics()
