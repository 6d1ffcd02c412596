"""Actors of Ray Train's controllers are kept from training to training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from icalib.distributed import controllers
from icalib.distributed.controllers import Controllers


class Hosts:
    """Starts hosts that answer with their number; each call of `remote` is a training."""

    def __init__(self) -> None:
        self.started = 0
        self.dead: set[int] = set()
        self.together = Barrier(1)

    def __call__(self) -> Any:
        number, self.started = self.started, self.started + 1

        def remote(parts: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            self.together.wait()
            if number in self.dead:
                raise ray.exceptions.RayActorError
            return number, parts

        return SimpleNamespace(run=SimpleNamespace(remote=remote))


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    hosts = Hosts()
    monkeypatch.setattr(controllers, "_start", hosts)
    monkeypatch.setattr(ray, "get", lambda reference: reference)
    return hosts


def test_one_training_after_the_other_has_the_same_host(hosts: Hosts) -> None:
    running = Controllers()
    assert [running.run({"name": name}) for name in "ab"] == [(0, {"name": "a"}), (0, {"name": "b"})]


def test_trainings_at_the_same_time_have_their_own(hosts: Hosts) -> None:
    running, hosts.together = Controllers(), Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        assert sorted(number for number, _ in pool.map(running.run, [{}] * 3)) == [0, 1, 2]
        assert sorted(number for number, _ in pool.map(running.run, [{}] * 3)) == [0, 1, 2]


def test_a_host_that_died_is_replaced(hosts: Hosts) -> None:
    running = Controllers()
    running.run({})
    hosts.dead = {0}
    with pytest.raises(ray.exceptions.RayActorError):
        running.run({})
    assert running.run({}) == (1, {})
