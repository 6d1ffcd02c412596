from __future__ import annotations

from pathlib import Path

from helpers.artifacts import known
from helpers.stores import Machines

from icalib.core.component import Settings
from icalib.core.job import Artifact, Job
from icalib.core.paths import Stored
from icalib.core.storage import push


class Named(Settings):
    data: Stored
    start: Stored | None = None
    models: dict[str, Stored]


class Training(Job):
    data: Artifact
    start: Artifact | None = None
    models: dict[str, Artifact]


def test_paths_travel_as_locations(machines: Machines) -> None:
    job = Named(data=machines.on("a", "pools"), models={"answer": machines.on("a", "model")})
    text = job.model_dump_json()
    elsewhere = machines.on("b", "pools")
    there = Named.model_validate_json(text)
    assert there == Named(data=elsewhere, models={"answer": elsewhere.with_name("model")})
    assert Named(data=Path("/shared/pools"), models={}).model_dump(mode="json")["data"] == "/shared/pools"
    assert job.model_dump()["data"] == job.data


def test_a_worker_brings_all_that_a_job_names(machines: Machines) -> None:
    for name in ("pools/train", "model/weights"):
        path = machines.on("a", name)
        path.parent.mkdir(parents=True)
        path.write_text(name)
        push(path)
    job = Training(
        data=known(machines.on("b", "pools")),
        start=known(Path("/nowhere")),
        models={"answer": known(machines.on("b", "model"))},
    )
    job.pull()
    assert (job.data.path / "train").read_text() == "pools/train"
    assert (job.models["answer"].path / "weights").read_text() == "model/weights"
