from __future__ import annotations

from pathlib import Path

from helpers.stores import Machines

from icalib.core.component import Settings
from icalib.core.paths import Stored, pull_all
from icalib.core.storage import push


class Job(Settings):
    data: Stored
    start: Stored | None = None
    models: dict[str, Stored]


def test_paths_travel_as_locations(machines: Machines) -> None:
    job = Job(data=machines.on("a", "pools"), models={"answer": machines.on("a", "model")})
    text = job.model_dump_json()
    elsewhere = machines.on("b", "pools")
    there = Job.model_validate_json(text)
    assert there == Job(data=elsewhere, models={"answer": elsewhere.with_name("model")})
    assert Job(data=Path("/shared/pools"), models={}).model_dump(mode="json")["data"] == "/shared/pools"
    assert job.model_dump()["data"] == job.data


def test_a_worker_brings_all_that_a_job_names(machines: Machines) -> None:
    for name in ("pools/train", "model/weights"):
        path = machines.on("a", name)
        path.parent.mkdir(parents=True)
        path.write_text(name)
        push(path)
    job = Job(data=machines.on("b", "pools"), start=Path("/nowhere"), models={"answer": machines.on("b", "model")})
    pull_all(job)
    assert (job.data / "train").read_text() == "pools/train"
    assert (job.models["answer"] / "weights").read_text() == "model/weights"
