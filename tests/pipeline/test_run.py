"""Whole runs with DeepSpeed: what they leave, what they reuse, what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.runs import Silent, run_context, small_settings

from icalib.core.errors import SettingError
from icalib.core.events import Event, Message
from icalib.core.locks import FileLock
from icalib.core.run_folder import RunFolder
from icalib.core.stage_cache import LOCKS
from icalib.data.pools import as_pools, read_column, read_pool_set, read_rows
from icalib.data.prepare import prepare
from icalib.data.schema import POOL_SCHEMA, SPLITS, Split
from icalib.data.selection import Rows
from icalib.data.settings import PrepareSettings
from icalib.data.simulate import simulate
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import check_fits, run, run_folder_of
from icalib.stages.executor import LocalExecutor


@pytest.fixture(scope="module")
def icast(runs: Path, tiny_pools: Path, tiny_bert: Path) -> RunFolder:
    settings = small_settings("icast", tiny_pools, tiny_bert)
    return run(settings, run_context(runs, Silent()))


@pytest.fixture
def settings(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    return small_settings("icast", tiny_pools, tiny_bert)


def test_an_icast_run_leaves_the_whole_record(icast: RunFolder) -> None:
    assert icast.is_finished
    assert [stage["name"] for stage in icast.stages] == [
        "tokens", "domain-pretraining", "teacher", "round-1/scores-cross", "round-1/scores", "round-1/pseudo-labels",
        "round-1/student", "validation/scores-cross", "validation/scores", "test/scores-cross", "test/scores",
    ]  # fmt: skip
    (summary,) = icast.round_summaries()
    assert summary.num_pools_selected > 0
    assert summary.num_pairs_selected == sum(summary.confusion.values())
    test = icast.result["test"]
    assert 0 < test["MAP"] <= 1
    assert 0 <= test["ECE"] <= 1
    assert set(icast.training()["stage"].to_pylist()) == {"domain_pretraining", "teacher", "student"}
    steps = icast.training()["step"].to_pylist()
    assert steps == sorted(steps)  # steps go on over the stages
    predictions = icast.predictions("test")
    assert predictions["num_passes"].to_pylist()[0] == 5
    assert icast.predicted_intents("test") is not None


def test_a_folder_with_other_settings_is_not_overwritten(
    icast: RunFolder, tiny_pools: Path, tiny_bert: Path, runs: Path
) -> None:
    other = small_settings("icast", tiny_pools, tiny_bert, **{"regime.rule.confidence_threshold": 0.1})
    with pytest.raises(SettingError, match="confidence_threshold"):
        run(other, run_context(runs, Silent()))


def test_a_control_repeats_labelled_pools_with_as_many_pairs_as_were_pseudo_labelled(
    icast: RunFolder, tiny_pools: Path, tiny_bert: Path, runs: Path
) -> None:
    settings = small_settings("icast", tiny_pools, tiny_bert, **{"regime.control": True})
    control = run(settings.model_copy(update={"experiment": "control"}), run_context(runs, Silent()))
    (stage,) = [Path(stage["path"]) for stage in control.stages if stage["name"] == "round-1/control"]
    tables = [pq.read_table(path) for path in sorted(stage.glob("pseudo-*.parquet"))]
    (summary,) = icast.round_summaries()
    assert sum(len(table["pool_id"].unique()) for table in tables) == summary.num_pools_selected
    assert sum(table.num_rows for table in tables) == summary.num_pairs_selected
    rows = settings.selection.rows("train", "labelled", read_column(tiny_pools, "train", "label_order"))
    right = {
        (pool.pool_id, index): pool.label == index
        for pool in as_pools(read_rows(tiny_pools, "train", rows))
        for index in range(len(pool.candidates))
    }
    trained = [row for table in tables for row in table.to_pylist()]
    assert all(right[row["pool_id"], row["candidate"]] == row["label"] for row in trained)
    assert "intent" in {row["view"] for row in trained}
    assert control.predictions("test") != icast.predictions("test")


def test_a_split_without_known_labels_is_refused_with_the_settings(
    settings: RunConfig, tiny_pools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(data: Path, split: Split, name: str) -> np.ndarray:
        found = read_column(data, split, name)
        return np.full_like(found, -1) if (split, name) == ("validation", "label") else found

    monkeypatch.setattr("icalib.pipeline.run.read_column", unknown)
    with pytest.raises(SettingError, match=r"no validation pool of .* has a known right candidate"):
        check_fits(settings, read_pool_set(tiny_pools))


def test_labelled_pools_without_intents_are_refused_where_intents_are_trained_on(
    settings: RunConfig, tiny_pools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(data: Path, split: Split, rows: Rows, columns: Sequence[str]) -> pa.Table:
        pools = read_rows(data, split, rows).to_pylist()
        for pool in pools:
            pool["context"] = [{**turn, "intents": []} for turn in pool["context"]]
        return pa.Table.from_pylist(pools, POOL_SCHEMA)

    check_fits(settings, read_pool_set(tiny_pools))
    monkeypatch.setattr("icalib.pipeline.run.read_rows", without)
    with pytest.raises(
        SettingError, match=r"no utterance of the \d+ labelled training pools of .* has any\. Use `tsst`"
    ):
        check_fits(settings, read_pool_set(tiny_pools))


def test_queries_of_one_turn_are_refused_where_domain_pretraining_reads_dialogues(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    rows = [
        {"query": f"{split} {number}", "pos": [f"yes {number}"], "neg": [f"no {number}"], "split": split}
        for split in SPLITS
        for number in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pool_set = prepare(tmp_path / "rows.jsonl", tmp_path / "pools", PrepareSettings(labelled=0.5))
    check_fits(small_settings("bert", tmp_path / "pools", tiny_bert, domain_pretraining=None), pool_set)
    with pytest.raises(SettingError, match=r"one utterance each\. Add --set domain_pretraining=null"):
        check_fits(small_settings("bert", tmp_path / "pools", tiny_bert), pool_set)
    check_fits(small_settings("bert", tiny_pools, tiny_bert), read_pool_set(tiny_pools))


def test_a_run_follows_its_pools_when_they_are_moved(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    before = shutil.copytree(tiny_pools, tmp_path / "project" / "pools")
    settings, context = small_settings("bm25", before, tiny_bert), run_context(tmp_path / "runs")
    first = run(settings, context).result
    after = shutil.move(tmp_path / "project", tmp_path / "moved") / "pools"
    shutil.rmtree(context.runs / ".cache")  # nothing is computed again
    found = run(settings.model_copy(update={"data": after}), context)
    assert found.result == {**first, "data": str(after)}
    assert found.config["data"] == str(after)
    assert not list(found.damages(checkpoints=True))
    assert not (context.runs / ".cache").exists()
    prepared = prepare_other(tmp_path / "other" / "pools")
    with pytest.raises(SettingError, match=r"has a run with other settings \(data\)"):
        run(settings.model_copy(update={"data": prepared}), context)


def prepare_other(folder: Path) -> Path:
    simulate(folder.with_name("desk.jsonl"), num_dialogues=60, seed=9)
    prepare(folder.with_name("desk.jsonl"), folder, PrepareSettings(num_candidates=4, labelled=0.5))
    return folder


def test_a_process_waits_for_another_one_that_computes_the_same_run(
    tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    config, notes = small_settings("bm25", tiny_pools, tiny_bert), list[str]()
    folder = run_folder_of(config, tmp_path)
    other = FileLock(folder.path.parent / LOCKS / f"{folder.name}.run")
    other.acquire()

    def note(event: Event) -> None:
        if isinstance(event, Message) and "another process is computing this run" in event.text:
            notes.append(event.text)
            other.release()

    run(config, run_context(tmp_path, note, LocalExecutor()))
    assert len(notes) == 1
    assert folder.is_finished
