from __future__ import annotations

from pathlib import Path

from helpers.stores import Machines

from icalib.core.component import Settings
from icalib.core.paths import Stored


class Named(Settings):
    data: Stored
    start: Stored | None = None
    models: dict[str, Stored]


def test_paths_travel_as_locations(machines: Machines) -> None:
    job = Named(data=machines.on("a", "pools"), models={"answer": machines.on("a", "model")})
    text = job.model_dump_json()
    elsewhere = machines.on("b", "pools")
    there = Named.model_validate_json(text)
    assert there == Named(data=elsewhere, models={"answer": elsewhere.with_name("model")})
    assert Named(data=Path("/shared/pools"), models={}).model_dump(mode="json")["data"] == "/shared/pools"
    assert job.model_dump()["data"] == job.data
