"""Runs whose bi-encoder learns from labels before the cross-encoder does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.runs import TRAINING, Silent, run_context, small_settings

from icalib.core.errors import SettingError
from icalib.core.files import read_json, read_json_list
from icalib.core.run_folder import RunFolder
from icalib.methods.catalogue import presets
from icalib.models.checkpoint import read_weights
from icalib.models.dual_encoder import bi_encoder_weights
from icalib.pipeline.run import RunContext, run
from icalib.training.job import best_epoch

LEARNS: dict[str, Any] = {
    "bi_encoder_training": {
        "training": {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32", "keep_start": False, "batch_size": 4}
    },
    "similarity_start": "separate",
}
GAUSSIAN_PROCESS = {"head.num_features": 64}
POLYA_GAMMA = {"head.num_chains": 4, "head.support.size": 16, "head.num_steps": 2, "head.prediction_steps": 4}
HEADS: dict[str, dict[str, Any]] = {
    **{name: GAUSSIAN_PROCESS for name in ("gpf-bert", "icast-gpf")},
    **{name: POLYA_GAMMA for name in ("pg-drr", "icast-pg")},
}
KEPT = {"regime.training": {**TRAINING, "epochs": 1, "head_learning_rate": 100.0, "keep_start": True}}
"""A head learning rate that no epoch of the cross-encoder survives."""


@pytest.fixture(scope="module")
def listener() -> Silent:
    return Silent()


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory, listener: Silent) -> RunContext:
    return run_context(tmp_path_factory.mktemp("runs"), listener)


@pytest.fixture(scope="module")
def bert(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> RunFolder:
    return run(small_settings("bert", tiny_pools, tiny_bert, **LEARNS, **KEPT), around)


@pytest.fixture(scope="module")
def tsst(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> RunFolder:
    some = {"regime.rule.scale": "quantile", "regime.rule.positive_threshold": 0.5}
    return run(small_settings("tsst", tiny_pools, tiny_bert, **LEARNS, **some), around)


def stage(run: RunFolder, name: str) -> Path:
    return Path({one["name"]: one["path"] for one in read_json_list(run.path / "stages.json")}[name])


def weights_of(folder: Path) -> dict[str, Any]:
    return bi_encoder_weights(read_weights(folder))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(bool((one[name] == other[name]).all()) for name in one)


def test_the_model_has_the_trained_bi_encoder(bert: RunFolder) -> None:
    trained = weights_of(stage(bert, "teacher-bi-encoder") / "checkpoint")
    assert same(trained, weights_of(bert.checkpoint_path))
    assert not same(trained, weights_of(stage(bert, "post-training") / "checkpoint"))


def test_a_run_that_ranks_by_it_has_learnt(bert: RunFolder, listener: Silent) -> None:
    """Its cross-encoder adds nothing, but it doesn't rank as before it saw labels."""
    assert bert.ranks_by_bi_encoder
    assert not bert.kept_start
    assert "teacher: no epoch was better on validation than the bi-encoder, which is kept" in listener.messages


def test_where_it_learns_nothing_the_start_is_kept(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> None:
    idle = {"training": {"epochs": 1, "learning_rate": 1e-30, "precision": "fp32", "batch_size": 4}}
    changes = {**LEARNS, **KEPT, "bi_encoder_training": idle}
    settings = small_settings("bert", tiny_pools, tiny_bert, **changes).model_copy(update={"experiment": "idle"})
    kept = run(settings, around)
    assert best_epoch(stage(kept, "teacher-bi-encoder")) == 0
    assert kept.kept_start


def test_a_student_s_bi_encoder_learns_from_pseudo_labels_too(tsst: RunFolder) -> None:
    teacher = read_json(stage(tsst, "teacher-bi-encoder") / "result.json")
    student = read_json(stage(tsst, "round-1/student-bi-encoder") / "result.json")
    assert student["examples"] > teacher["examples"]
    trained = weights_of(stage(tsst, "round-1/student-bi-encoder") / "checkpoint")
    assert same(trained, weights_of(tsst.checkpoint_path))
    assert not same(trained, weights_of(stage(tsst, "teacher-bi-encoder") / "checkpoint"))


@pytest.mark.parametrize("method", ["gpf-bert", "pg-drr", "ensemble", "icast-gpf", "icast-pg"])
def test_any_head_and_regime_goes_on_from_it(
    method: str, around: RunContext, tiny_pools: Path, tiny_bert: Path
) -> None:
    quick = {**TRAINING, "epochs": 1}
    small = {name: {**quick, "train_negatives": 1} for name in ("regime.training", "regime.teacher", "regime.student")}
    run_folder = run(small_settings(method, tiny_pools, tiny_bert, **LEARNS, **small, **HEADS.get(method, {})), around)
    names = [one["name"] for one in read_json_list(run_folder.path / "stages.json")]
    assert ("round-1/student-bi-encoder" in names) == method.startswith("icast")


@pytest.mark.parametrize("method", ["bert", "tsst"])
def test_the_bi_encoder_alone(method: str, around: RunContext, tiny_pools: Path, tiny_bert: Path) -> None:
    changes = {**LEARNS, "regime.rule.scale": "quantile", "regime.rule.positive_threshold": 0.5}
    changes |= {path: 0 for path in presets(method)["bi-encoder"] if path.endswith(".epochs")}
    settings = small_settings(method, tiny_pools, tiny_bert, **changes).model_copy(update={"experiment": "alone"})
    alone = run(settings, around)
    assert alone.ranks_by_bi_encoder
    assert not alone.kept_start
    model = "round-1/student" if method == "tsst" else "teacher"
    assert read_json(stage(alone, model) / "result.json")["updates"] == 0
    assert read_json(stage(alone, f"{model}-bi-encoder") / "result.json")["updates"] > 0


def test_without_epochs_there_has_to_be_something_that_ranks(tiny_pools: Path, tiny_bert: Path) -> None:
    changes: dict[str, Any] = {"regime.training.epochs": 0, "similarity_start": "none"}
    with pytest.raises(SettingError, match="these don't rank yet"):
        small_settings("bert", tiny_pools, tiny_bert, **changes)
