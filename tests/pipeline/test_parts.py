"""Runs of a sum of parts: what they leave, predict elsewhere, and reuse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.runs import CPU, TRAINING, Silent, prediction_digest, run_context, small_settings

from icalib.core.component import with_settings
from icalib.core.errors import RunFolderError
from icalib.core.files import read_json, read_json_list
from icalib.core.run_folder import RUN_VERSION, RunFolder
from icalib.core.seeding import child_seed
from icalib.methods.catalogue import presets
from icalib.parts.job import ORDER
from icalib.parts.loaded import LoadedMembers
from icalib.parts.sum import SumOfParts
from icalib.pipeline.executor import LocalExecutor
from icalib.pipeline.inference import FinishedRun
from icalib.pipeline.run import RunContext, RunSettings, run

PARTS: dict[str, Any] = {
    "similarity": {"training": {**TRAINING, "selection_metric": "MAP", "batch_size": 4}},
    "intent": {},
    "uncertainty.num_passes": 2,
}


@pytest.fixture(scope="module")
def settings(tiny_pools: Path, tiny_bert: Path) -> RunSettings:
    return small_settings("icast", tiny_pools, tiny_bert, **PARTS)


@pytest.fixture(scope="module")
def finished(settings: RunSettings, around: RunContext) -> RunFolder:
    return run(settings, around)


@pytest.fixture(scope="module")
def fitted(finished: RunFolder) -> SumOfParts:
    (found,) = read_json_list(finished.path / "parts.json")
    return SumOfParts.model_validate(found)


def test_it_has_the_weights_of_all_parts_and_checkpoints_of_the_used_ones(
    finished: RunFolder, fitted: SumOfParts
) -> None:
    assert [part.name for part in fitted.parts] == list(ORDER)
    assert SumOfParts.load(finished.checkpoint_path / "parts.json") == fitted
    kept = {path.name for path in finished.checkpoint_path.iterdir() if path.is_dir()}
    intents = {"intent"} if "cross" in fitted.used else set[str]()  # which the cross-encoder reads
    assert kept == set(fitted.used) | intents
    names = [stage["name"] for stage in finished.stages]
    trained = ["similarity", "similarity-fold-1", "similarity-fold-2", "intent", "cross"]
    assert [name for name in names if name.removeprefix("teacher-") in trained] == [f"teacher-{one}" for one in trained]
    assert [name for name in names if name.removeprefix("round-1/student-") in trained] == [
        f"round-1/student-{one}" for one in ORDER
    ]


def test_another_machine_predicts_what_the_run_did(finished: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "copy")
    members = FinishedRun.open(tmp_path / "copy").load_members()
    assert isinstance(members, LoadedMembers)
    stages = {stage["name"]: Path(stage["path"]) for stage in finished.stages}
    (store,) = (stage for name, stage in stages.items() if name == "tokens")
    check_scores(members, store, stages["test/scores"])


def check_scores(members: LoadedMembers, tokens: Path, scores: Path) -> None:
    """Check that loaded members compute every shard of the run's test scores and intents."""
    from icalib.data.encoding import TokenStore

    shards = sorted(scores.glob("scores-*.parquet"))
    assert len(shards) > 1
    for index, shard in enumerate(shards):
        expected = pq.read_table(shard)
        rows = list(dict.fromkeys(expected["row"].to_pylist()))
        seed = child_seed(1001, "shard", "test", "all", index)
        found, intents = members.score(TokenStore(tokens / "test.arrow"), rows, seed)
        assert found.drop_columns(MOMENTS).equals(expected.drop_columns(MOMENTS))
        for name in MOMENTS:
            np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-6, atol=1e-9)
        path = shard.with_name(f"intents-{index:06d}.parquet")
        assert path.is_file() == (intents is not None)
        assert intents is None or intents.equals(pq.read_table(path))
