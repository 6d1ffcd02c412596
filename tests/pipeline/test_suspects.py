"""Labels that are probably wrong: found by models that have not seen them, labelled again, and imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.annotators import filled_table
from helpers.pool_folders import read_pools
from helpers.runs import TRAINING, Silent, run_context, small_settings

from icalib import label_suspects
from icalib.core.errors import SettingError
from icalib.data.pools import read_column, read_pool_set
from icalib.labelling.relabelled import Labels, write_relabelled
from icalib.labelling.suspects import out_of_fold_predictions
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.run import RunContext, run
from icalib.training.domain_pretraining.contrastive import Contrastive

Command = Callable[..., tuple[int, str, str]]

EPOCH = {**TRAINING, "epochs": 1}
SIMILARITY = {"training": {**EPOCH, "selection_metric": "MAP", "batch_size": 4}}
ALL_PARTS: dict[str, Any] = {
    "similarity": SIMILARITY,
    "intent": {"training": {**EPOCH, "selection_metric": "NLL"}, "num_folds": 2, "ridge": 1.0},
    "regime.teacher": EPOCH,
    "uncertainty.num_passes": 2,
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "cross": ("bert", {"regime.training": EPOCH}),
    "all parts": ("icast", ALL_PARTS),
}


def small_run(data: Path, backbone: Path, around: RunContext, name: str = "cross") -> FinishedRun:
    method, changes = METHODS[name]
    settings = small_settings(
        method, data, backbone, experiment=name.replace(" ", "-"), domain_pretraining=None, **changes
    )
    return FinishedRun.open(run(settings, around).path)


def predicted(run: FinishedRun, around: RunContext, folds: int = 2) -> pa.Table:
    return out_of_fold_predictions(run, read_pool_set(run.config.data), folds, around)


def labelled_ids(run: FinishedRun) -> list[str]:
    order = read_column(run.config.data, "train", "label_order")
    pools = read_pools(run.config.data, "train")
    return [pools[row].pool_id for row in run.config.selection.rows("train", "labelled", order)]


@pytest.fixture(scope="module")
def bert(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    return small_run(tiny_pools, tiny_bert, around)


@pytest.mark.parametrize("name", METHODS)
def test_every_labelled_pool_is_scored_once_and_stages_are_reused(
    name: str, tiny_pools: Path, tiny_bert: Path, around: RunContext
) -> None:
    run = small_run(tiny_pools, tiny_bert, around, name)
    found = predicted(run, around)
    names = list(zip(found["pool_id"].to_pylist(), found["candidate"].to_pylist(), strict=True))
    assert len(set(names)) == len(names)
    assert {pool_id for pool_id, _ in names} == set(labelled_ids(run))
    assert not np.isnan(found["prob"].to_numpy()).any()
    silent = Silent()
    again = predicted(run, run_context(around.runs, silent))
    assert again["prob"].equals(found["prob"])
    assert all(silent.stages.values())


def test_a_label_has_no_influence_on_what_its_pool_gets(
    bert: FinishedRun, tiny_bert: Path, around: RunContext, tmp_path: Path
) -> None:
    data, ids = bert.config.data, labelled_ids(bert)
    pool_set, pools = read_pool_set(data), read_pools(data, "train")
    labels, row = Labels(data, pool_set), [pool.pool_id for pool in pools].index(ids[0])
    labels.set(row, ((pools[row].label + 1) % 4,), [])
    write_relabelled(tmp_path / "changed", data, pool_set, labels, [])
    other = small_run(tmp_path / "changed", tiny_bert, around)
    assert labelled_ids(other) == ids
    before, after = (
        table.to_pandas().groupby("pool_id")["logit"] for table in map(predicted, (bert, other), [around] * 2)
    )
    assert before.get_group(ids[0]).tolist() == pytest.approx(after.get_group(ids[0]).tolist(), rel=1e-9)
    differs = [before.get_group(one).tolist() != pytest.approx(after.get_group(one).tolist(), rel=1e-9) for one in ids]
    assert any(differs)  # those of the other fold, whose model has seen the label


def test_suspects_are_labelled_again_and_imported(
    bert: FinishedRun, around: RunContext, tmp_path: Path, icalib: Command
) -> None:
    data, out = bert.config.data, tmp_path / "suspects.csv"
    where = ("--runs", around.runs, "--executor", "local")
    code, printed, err = icalib(
        "label", "suspects", bert.folder.path, "--number", 3, "--folds", 2, "--out", out, "--json", *where
    )
    assert code == 0, err
    found = json.loads(printed)
    ids = [one["pool"]["pool_id"] for one in found["suspects"]]
    assert len(ids) == 3
    assert f"{found['num_suspects']} of {len(labelled_ids(bert))} labels look wrong; the likeliest first" in err
    assert "--labelled 0.3" in err  # the folder's own fraction is another one
    for one in found["suspects"]:
        assert one["labelled"] == one["pool"]["label"] != one["preferred"]
        assert one["preferred_prob"] > one["labelled_prob"]
    before = {pool.pool_id: pool for pool in read_pools(data, "train")}
    preferred = {one["pool"]["pool_id"]: one["preferred"] for one in found["suspects"]}
    filled = filled_table(out, tmp_path / "filled.csv", lambda pool_id: [preferred[pool_id]])
    code, _, err = icalib("label", "import", filled, "--data", data, "--out", tmp_path / "new")
    assert code == 0, err
    after = {pool.pool_id: pool for pool in read_pools(tmp_path / "new", "train")}
    assert {name for name in before if after[name].label != before[name].label} == set(ids)
    assert all(after[name].label == preferred[name] for name in ids)
    order = read_column(tmp_path / "new", "train", "label_order")
    rows = bert.config.selection.rows("train", "labelled", order)
    pools = read_pools(tmp_path / "new", "train")
    assert {pools[row].pool_id for row in rows} == set(labelled_ids(bert))  # with the run's --labelled: the same pools


def test_runs_that_say_nothing_about_their_labels_are_refused(
    bert: FinishedRun, around: RunContext, tiny_pools: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    place: Any = {"runs": around.runs, "executor": "local"}
    untrained = run(small_settings("bm25", tiny_pools, tiny_bert), around)
    with pytest.raises(SettingError, match=r"`bm25`, which isn't trained on labels\. Give a run of a method"):
        label_suspects(untrained.path, **place)
    settings = bert.config.settings.model_copy(update={"domain_pretraining": Contrastive.Config(targets="replies")})
    sees_all = replace(bert, config=bert.config.model_copy(update={"settings": settings}))
    with pytest.raises(SettingError, match="was pre-trained on the labels of all training pools"):
        predicted(sees_all, around)
    (tmp_path / "old.csv").touch()
    with pytest.raises(SettingError, match="exists already and may have labels"):
        label_suspects(bert.folder.path, tmp_path / "old.csv", **place)
