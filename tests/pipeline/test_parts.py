"""Runs of a sum of parts: what they leave, predict elsewhere, and reuse."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.observers import Interrupted
from helpers.runs import TRAINING, Silent, prediction_digest, run_context, small_settings

from icalib.core.errors import SettingError
from icalib.core.files import read_json_list
from icalib.core.run_folder import RunFolder
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.data.pools import read_pool_set
from icalib.parts.fit import fit_sum
from icalib.parts.job import ORDER
from icalib.parts.loaded import LoadedMembers
from icalib.parts.sum import SumOfParts
from icalib.pipeline.config import RunConfig
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.run import RunContext, check_fits, run
from icalib.scoring.scores import Shards
from icalib.stages.executor import LocalExecutor
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.job import TrainingJob

EPOCH = {**TRAINING, "epochs": 1}
PARTS: dict[str, Any] = {
    "similarity": {"training": {**EPOCH, "selection_metric": "MAP", "batch_size": 4}},
    "intent": {"training": {**EPOCH, "selection_metric": "NLL"}, "num_folds": 2, "ridge": 1.0},
    "regime.teacher": EPOCH,
    "uncertainty.num_passes": 2,
}


@pytest.fixture(scope="module")
def settings(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    return small_settings("icast", tiny_pools, tiny_bert, **PARTS)


@pytest.fixture(scope="module", autouse=True)
def all_parts_have_a_weight() -> Iterator[None]:
    """Of such small trainings some are useless."""

    def with_all_parts(*arguments: Any) -> SumOfParts:
        found = fit_sum(*arguments)
        return found.model_copy(update={"parts": tuple(one.model_copy(update={"weight": 1.5}) for one in found.parts)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icalib.parts.fit.fit_sum", with_all_parts)
        yield


@pytest.fixture(scope="module")
def finished(settings: RunConfig, around: RunContext) -> RunFolder:
    return run(settings, around)


def test_it_has_the_weights_and_checkpoints_of_all_parts(finished: RunFolder) -> None:
    (found,) = read_json_list(finished.path / "parts.json")
    fitted = SumOfParts.model_validate(found)
    assert [part.name for part in fitted.parts] == list(ORDER)
    assert SumOfParts.load(finished.checkpoint_path / "parts.json") == fitted
    assert {path.name for path in finished.checkpoint_path.iterdir() if path.is_dir()} == set(ORDER)
    names = [stage["name"] for stage in finished.stages]
    trained = ["similarity", "similarity-fold-1", "similarity-fold-2", "intent", "cross"]
    assert [name for name in names if name.removeprefix("teacher-") in trained] == [f"teacher-{one}" for one in trained]
    assert [name for name in names if name.removeprefix("round-1/student-") in trained] == [
        f"round-1/student-{one}" for one in ORDER
    ]


def test_a_part_without_a_weight_is_not_kept(
    tiny_pools: Path, tiny_bert: Path, around: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_similarity(*arguments: Any) -> SumOfParts:
        found = fit_sum(*arguments)
        parts = tuple(one.model_copy(update={"weight": float(one.name == "cross")}) for one in found.parts)
        return found.model_copy(update={"parts": parts})

    monkeypatch.setattr("icalib.parts.fit.fit_sum", without_similarity)
    finished = run(small_settings("bert", tiny_pools, tiny_bert, similarity=PARTS["similarity"]), around)
    assert {path.name for path in finished.checkpoint_path.iterdir() if path.is_dir()} == {"cross"}


def test_another_machine_predicts_what_the_run_did(finished: RunFolder, settings: RunConfig, tmp_path: Path) -> None:
    members = FinishedRun.open(shutil.copytree(finished.path, tmp_path / "copy")).load_members()
    assert isinstance(members, LoadedMembers)
    assert tuple(members.sums[0].parts) == ORDER
    stages = {stage["name"]: Path(stage["path"]) for stage in finished.stages}
    store = TokenStore(stages["tokens"] / "test")
    shards = list(Shards(stages["test/scores"]))
    assert len(shards) > 1
    for index, (expected, predicted) in enumerate(shards):
        seed = child_seed(settings.seed * 1000, "shard", "test", "all", index)
        rows = sorted(set(expected["row"].to_pylist()))
        scores, intents = members.score(store, rows, seed)
        pd.testing.assert_frame_equal(scores.to_pandas(), expected.to_pandas(), rtol=1e-6)
        assert intents == predicted


def test_an_interrupted_run_goes_on_and_a_repeated_one_reuses_every_stage(
    finished: RunFolder, settings: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = LocalExecutor.train

    def interrupted(executor: LocalExecutor, job: TrainingJob, *arguments: Any) -> None:
        if isinstance(job, CrossEncoderJob):
            raise Interrupted
        train(executor, job, *arguments)

    listener = Silent()
    context = run_context(tmp_path, listener)
    with monkeypatch.context() as patch:
        patch.setattr(LocalExecutor, "train", interrupted)
        with pytest.raises(Interrupted):
            run(settings, context)
    done = set(listener.stages)
    assert "teacher-intent" in done
    listener.stages.clear()
    again = run(settings, context)
    assert {name for name, reused in listener.stages.items() if reused} >= done
    assert prediction_digest(again) == prediction_digest(finished)
    shutil.rmtree(again.path)
    listener.stages.clear()
    assert prediction_digest(run(settings, context)) == prediction_digest(finished)
    assert all(listener.stages.values())


def test_passes_without_dropout_are_refused_before_anything_is_computed(tiny_pools: Path, tiny_bert: Path) -> None:
    settings = small_settings("icast", tiny_pools, tiny_bert, **{"encoder.dropout": 0.0})
    with pytest.raises(SettingError, match=r"mc-dropout needs dropout.*Set `encoder\.dropout`"):
        check_fits(settings, read_pool_set(tiny_pools))
