"""The loop of labelling: a run chooses pools, annotators label them, and the next run learns from the labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.annotators import exported
from helpers.pool_folders import read_pools
from helpers.runs import small_settings

from icalib import label_next
from icalib.core.errors import SettingError
from icalib.data.pools import read_column, read_pool_set
from icalib.labelling.choose import Unlabelled
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.run import RunContext, run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def bert(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    settings = small_settings("bert", tiny_pools, tiny_bert, domain_pretraining=None)
    return FinishedRun.open(run(settings, around).path)


def rows_of(folder: Path, ids: tuple[str, ...] | list[str]) -> list[int]:
    names = [pool.pool_id for pool in read_pools(folder, "train")]
    return [names.index(one) for one in ids]


def test_labels_of_annotators_reach_the_next_run(
    bert: FinishedRun, around: RunContext, tiny_bert: Path, tmp_path: Path, icalib: Command
) -> None:
    data, out, where = bert.config.data, tmp_path / "batch.json", ("--runs", around.runs, "--executor", "local")
    code, _, err = icalib("label", "next", bert.folder.path, "--number", 6, "--by", "mixed", "--out", out, *where)
    assert code == 0, err
    assert "batch.json: 6 of " in err
    assert "half the most uncertain by the margin" in err
    tasks = json.loads(out.read_text())
    ids = [task["data"]["pool_id"] for task in tasks]
    order = read_column(data, "train", "label_order")
    assert set(rows_of(data, ids)) <= set(bert.config.selection.rows("train", "unlabelled", order).tolist())
    config = ElementTree.parse(tmp_path / "batch.xml").getroot()
    names = {one.attrib["value"] for one in config.findall("./Choices[@name='intents1']/Choice")}
    assert names == set(read_pool_set(data).intents)
    used = {
        one.attrib["value"].removeprefix("$") for one in config.iter() if one.attrib.get("value", "").startswith("$")
    }
    assert all(used <= task["data"].keys() for task in tasks)
    export = exported(out, tmp_path / "export.json", {"ann": lambda pool_id: [3]}, {1: ["misspelt"]})
    code, _, err = icalib("label", "import", export, "--data", data, "--out", tmp_path / "labelled")
    assert code == 0, err
    assert "6 pools annotated" in err
    assert "new intents: misspelt" in err
    assert f"next: icalib run METHOD --data {tmp_path / 'labelled'}" in err
    pool_set = read_pool_set(tmp_path / "labelled")
    assert pool_set.default_labelled_fraction is not None
    again = small_settings("bert", tmp_path / "labelled", tiny_bert, domain_pretraining=None)
    again = again.model_copy(update={"labelled": pool_set.default_labelled_fraction})
    assert again.num_unannotated() == 0
    every = again.model_copy(update={"labelled": 1.0})
    assert every.num_unannotated() == every.num_labelled() - again.num_labelled() > 0
    order = read_column(tmp_path / "labelled", "train", "label_order")
    labelled = again.selection.rows("train", "labelled", order).tolist()
    rows = rows_of(tmp_path / "labelled", ids)
    assert set(rows) <= set(labelled)
    assert {read_column(tmp_path / "labelled", "train", "label")[row] for row in rows} == {3}
    finished = FinishedRun.open(run(again, around).path)
    with pytest.raises(SettingError, match="has other pools than"):
        Unlabelled.of(data, finished)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either a run or a pool folder"),
        (["--data", "POOLS", "--by", "uncertain"], "name a run, or choose --by random"),
    ],
)
def test_wrong_arguments_of_label_next(icalib: Command, tiny_pools: Path, arguments: list[str], said: str) -> None:
    code, _, err = icalib("label", "next", *(str(tiny_pools) if one == "POOLS" else one for one in arguments))
    assert code == 2
    assert said in err
    assert "Traceback" not in err


def test_a_run_without_a_model_chooses_by_its_margins_and_its_encoder(
    around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    finished = run(small_settings("bm25", tiny_pools, tiny_bert), around)
    batch = label_next(finished.path, tmp_path / "b.csv", number=4, by="mixed", runs=around.runs, executor="local")
    assert "margin" in batch.how
    assert batch.num_dialogues == 4
