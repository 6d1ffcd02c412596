"""Pools and runs in an object store, on machines that share nothing else; each works by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.runs import Silent, outcome_digest, run_context, small_settings
from helpers.stores import Machines

from icalib.core.errors import StorageError
from icalib.core.run_folder import RunFolder
from icalib.core.storage import ObjectStore, location, pull, remove
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.pipeline.config import RunConfig
from icalib.pipeline.finished import FinishedRun, evaluate
from icalib.pipeline.run import run

PREPARE = PrepareSettings(num_candidates=4, seed=7)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with pytest.MonkeyPatch.context() as patch:
        yield Machines(tmp_path_factory.mktemp("machines"), patch)


@pytest.fixture(scope="module")
def dialogues(tiny_pools: Path) -> Path:
    return tiny_pools.parent / "dialogues.jsonl"


@pytest.fixture(scope="module")
def pools(machines: Machines, dialogues: Path) -> str:
    """Where in the store the tiny pools are."""
    out = machines.on("prepares", "pools")
    prepare(dialogues, out, PREPARE)
    return location(out)


def settings_for(data: Path, backbone: Path) -> RunConfig:
    return small_settings("sngp", data, backbone, domain_pretraining=None)


@pytest.fixture(scope="module")
def on_disk(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(settings_for(tiny_pools, tiny_bert), run_context(tmp_path_factory.mktemp("disk")))


@pytest.fixture(scope="module")
def in_store(machines: Machines, pools: str, tiny_bert: Path) -> RunFolder:
    data = machines.on("first", "pools")
    return run(settings_for(data, tiny_bert), run_context(machines.on("first", "runs")))


def test_pools_in_a_store_are_those_of_a_disk(
    pools: str, machines: Machines, dialogues: Path, tiny_pools: Path
) -> None:
    data = machines.on("reads", "pools")
    assert read_pool_set(data).digest == read_pool_set(tiny_pools).digest
    notes: list[str] = []
    prepare(dialogues, data, PREPARE, note=notes.append)
    assert "no action needed" in notes[-1]


def test_a_run_in_a_store_is_that_of_a_disk(in_store: RunFolder, on_disk: RunFolder, pools: str) -> None:
    assert outcome_digest(in_store) == outcome_digest(on_disk)
    assert in_store.result["data"] == in_store.config["data"] == pools
    assert in_store.result["run"] == pools.replace("/pools", f"/runs/test/{in_store.name}")


def test_another_machine_reuses_every_stage(in_store: RunFolder, machines: Machines, tiny_bert: Path) -> None:
    before = outcome_digest(in_store)
    data, runs = machines.on("second", "pools"), machines.on("second", "runs")
    folder = runs / "test" / in_store.name
    pull(folder)
    remove(folder)
    listener = Silent()
    again = run(settings_for(data, tiny_bert), run_context(runs, listener))
    scores = [f"{split}/{name}" for split in ("validation", "test") for name in ("scores-cross", "scores")]
    assert listener.stages == dict.fromkeys(["tokens", "teacher", *scores], True)
    assert outcome_digest(again) == before


def test_the_same_machine_uploads_a_run_whose_upload_broke_off_and_another_reads_it(
    in_store: RunFolder, machines: Machines, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = outcome_digest(in_store)
    upload = ObjectStore.upload

    def breaking_off(store: ObjectStore, path: Path) -> None:
        if "broken" in path.parts and path.name not in ("config.yaml", "metrics.parquet"):
            raise StorageError(f"can't write {path}")
        upload(store, path)

    def settings(machine: str) -> RunConfig:
        data = machines.on(machine, "pools")
        return settings_for(data, tiny_bert).model_copy(update={"experiment": "broken"})

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "upload", breaking_off)
        with pytest.raises(StorageError):
            run(settings("third"), run_context(machines.on("third", "runs"), Silent()))
    same = run(settings("third"), run_context(machines.on("third", "runs"), Silent()))  # it is finished there
    assert machines.there(f"runs/broken/{same.name}/result.json").is_file()
    again = run(settings("fourth"), run_context(machines.on("fourth", "runs"), Silent()))
    assert outcome_digest(again) == before


def test_a_machine_with_an_older_copy_of_a_run_neither_uploads_nor_believes_it(
    pools: str, machines: Machines, tiny_bert: Path
) -> None:
    def made(machine: str, learning_rate: float, *, fresh: bool = False) -> RunFolder:
        training = {"regime.training.learning_rate": learning_rate}
        config = small_settings("sngp", machines.on(machine, "pools"), tiny_bert, domain_pretraining=None, **training)
        config = config.model_copy(update={"experiment": "remade"})
        context = run_context(machines.on(machine, "runs"), Silent())
        return run(config, replace(context, recomputed=set() if fresh else None))

    def evaluated(machine: str) -> dict[str, float]:
        folder = machines.on(machine, f"runs/remade/{name}")
        context = run_context(machines.on(machine, "runs"), Silent())
        return evaluate(FinishedRun.open(folder), machines.on(machine, "pools"), None, context)["test"]

    name = made("remakes", 1e-3).name
    earlier = evaluated("keeps")
    made("remakes", 3e-2, fresh=True)
    folder = machines.there(f"runs/remade/{name}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    made("keeps", 3e-2)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert evaluated("keeps") == evaluated("remakes") != earlier
