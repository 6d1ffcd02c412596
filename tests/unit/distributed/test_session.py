from __future__ import annotations

import signal
import socket
import sys

import pytest

from icalib.core.errors import ClusterError, SettingError
from icalib.core.interrupts import Terminated
from icalib.distributed import session


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "no-such-host.invalid:{port}"])
@pytest.mark.timeout(30)
def test_a_cluster_that_does_not_listen_is_reported_without_retries_of_ray(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # an earlier test may have initialised it
    monkeypatch.setenv("RAY_ADDRESS", address.format(port=closed_port()))
    with pytest.raises(SettingError, match=r"no Ray cluster answers at .*leave --address out"):
        session.start()
    assert capfd.readouterr().err == ""


def test_a_ray_that_does_not_start_here_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", slow)
    monkeypatch.setattr(session, "protect_token", lambda note, create: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(
        ClusterError, match=r"didn't start on this machine \(The current node timed out.*--executor local"
    ):
        session.start()


def test_a_node_that_died_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"NodeManagerHostname": "host", "NodeManagerAddress": "127.0.0.1", "Resources": {}, "Alive": True}
    nodes = [{"NodeID": "mine", **facts}, {"NodeID": "other", **facts}]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    session.check_alive("mine")
    nodes[0]["Alive"] = False
    with pytest.raises(ClusterError, match=r"`raylet` on this machine has died.*same command again to resume"):
        session.check_alive("mine")


def test_rays_handlers_of_signals_do_not_replace_ours() -> None:
    def ours(number: int, frame: object) -> None: ...

    def rays(number: int, frame: object) -> None: ...

    earlier = signal.signal(signal.SIGTERM, ours)
    try:
        with session._own_handlers():
            signal.signal(signal.SIGTERM, rays)
        assert signal.getsignal(signal.SIGTERM) is ours
        with pytest.raises(Terminated), session._own_handlers():
            sys.exit(1)  # as Ray's handler does while Ray starts
    finally:
        signal.signal(signal.SIGTERM, earlier)
