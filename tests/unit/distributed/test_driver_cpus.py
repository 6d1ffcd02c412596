"""Resources of trainings in a job whose own process reserves cores."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icalib.distributed import session

HEAD, FIRST, SECOND = "head", "first", "second"


def cluster(monkeypatch: pytest.MonkeyPatch, cpus: dict[str, int], *, here: str, held: str | None) -> None:
    import ray

    nodes = [{"NodeID": name, "Alive": True, "Resources": {"CPU": float(number)}} for name, number in cpus.items()]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: here))
    if held is not None:
        monkeypatch.setenv(session.DRIVER_CPUS, held)


@pytest.mark.parametrize(
    ("here", "held", "scorers", "cores"),
    [
        (FIRST, None, 8, 4),  # no job: all cores
        (FIRST, "1", 7, 4),  # the worker runs on the idle node
        (HEAD, "1", 7, 4),  # a head without cores can't run the driver
        (FIRST, "0", 8, 4),
    ],
)
def test_trainings_do_not_use_the_drivers_cores(
    monkeypatch: pytest.MonkeyPatch, here: str, held: str | None, scorers: int, cores: int
) -> None:
    cluster(monkeypatch, {HEAD: 0, FIRST: 4, SECOND: 4}, here=here, held=held)
    resources = session.available()
    assert (resources.num_scorers, resources.cpus_per_worker) == (scorers, cores)


def test_one_node_of_two_cores_trains_on_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, {FIRST: 2}, here=FIRST, held="1")
    resources = session.available()
    assert (resources.num_workers, resources.cpus_per_worker, resources.num_scorers) == (1, 1, 1)
