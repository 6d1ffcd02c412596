"""Files of a small cache and of finished runs that are damaged: noticed, and computed again or refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.damage import DAMAGES, Damage
from helpers.runs import Silent, prediction_digest, run_context, small_settings

from icalib.core.errors import DamagedFileError
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder
from icalib.pipeline.config import RunConfig
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import run

ONE_OF_EACH = ("truncate", "flip_a_bit", "delete")


@pytest.fixture(scope="module")
def untrained(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    return small_settings("bm25", tiny_pools, tiny_bert)


@pytest.fixture(scope="module")
def trained(tiny_pools: Path, tiny_bert: Path) -> RunConfig:
    """One epoch, without domain pre-training."""
    return small_settings("bert", tiny_pools, tiny_bert, domain_pretraining=None, **{"regime.training.epochs": 1})


@pytest.fixture(scope="module")
def finished(trained: RunConfig, runs: Path) -> RunFolder:
    return run(trained, run_context(runs))


def cached_files(cache: Path) -> list[Path]:
    found = (path for path in cache.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(cache).parts))


def test_every_damaged_file_of_a_cache_is_computed_again(untrained: RunConfig, tmp_path: Path) -> None:
    first = prediction_digest(run(untrained, run_context(tmp_path / "first")))
    files = [path.relative_to(tmp_path / "first") for path in cached_files(tmp_path / "first" / ".cache")]
    assert {path.suffix for path in files} == {".parquet", ".json"}
    for file in files:
        for name in ONE_OF_EACH:
            shutil.copytree(tmp_path / "first" / ".cache", tmp_path / "again" / ".cache")
            DAMAGES[name](tmp_path / "again" / file)
            listener = Silent()
            assert prediction_digest(run(untrained, run_context(tmp_path / "again", listener))) == first
            if file.name != "stage.json":  # the bit may be in a name, and a stage without the file isn't finished
                assert sum(not reused for reused in listener.stages.values()) == 1
                assert [text for text in listener.messages if text.endswith(": computing this stage again")]
            shutil.rmtree(tmp_path / "again")


@pytest.mark.parametrize(
    "file", ["parts.json", "cross/model.safetensors", "cross/ranker.json", "cross/backbone/tokenizer.json"]
)
def test_a_damaged_model_is_refused(finished: RunFolder, tmp_path: Path, file: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    FinishedRun.open(copy)
    DAMAGES["flip_a_bit"](copy / "checkpoints" / "final" / file)
    for use in (FinishedRun.open, LoadedRanker.load):
        with pytest.raises(DamagedFileError, match=f"{file} has other content.*icalib run"):
            use(copy)


@pytest.mark.parametrize(
    "file", ["checkpoints/final/cross/model.safetensors", "stages.json", "predictions/test.parquet"]
)
@pytest.mark.parametrize("damage", [DAMAGES[name] for name in ONE_OF_EACH], ids=ONE_OF_EACH)
def test_the_same_command_writes_a_damaged_run_again(
    finished: RunFolder, trained: RunConfig, runs: Path, file: str, damage: Damage
) -> None:
    """A checkpoint may be a hard link to the cache, which is damaged then, too."""
    before = prediction_digest(finished), read_json(finished.path / "files.json")["files"][f"{file}"]
    damage(finished.path / file)
    listener = Silent()
    run(trained, run_context(runs, listener))
    assert any(text.endswith(": writing it again from the cached stages") for text in listener.messages)
    assert prediction_digest(finished) == before[0]
    FinishedRun.open(finished.path)
    if file != "stages.json":  # it has the time that each stage took
        assert read_json(finished.path / "files.json")["files"][file] == before[1]
    listener = Silent()
    run(trained, run_context(runs, listener))
    assert "already finished" in listener.messages[-1]
