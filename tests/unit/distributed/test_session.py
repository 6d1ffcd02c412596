from __future__ import annotations

import _thread
import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.ports import free_port
from hypothesis import given
from hypothesis import strategies as st

from icalib.core.errors import ClusterError, SettingError
from icalib.distributed import session
from icalib.distributed.session import DRIVER_CPUS, available, available_to_trials, protect_token, room_for_workers
from icalib.stages.resources import Resources


def test_workers_that_scripts_start_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "collect_rarely", lambda: None)
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with warnings.catch_warnings():
            session.set_up_worker()
        with pytest.raises(KeyboardInterrupt):
            _thread.interrupt_main()
    finally:
        signal.signal(signal.SIGINT, earlier)


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "no-such-host.invalid:{port}", "[::1"])
@pytest.mark.timeout(30)
def test_a_cluster_that_does_not_listen_is_reported_without_retries_of_ray(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # an earlier test may have initialised it
    monkeypatch.setenv("RAY_ADDRESS", address.format(port=free_port()))
    with pytest.raises(SettingError, match=r"can't join the Ray cluster at .*unset RAY_ADDRESS"):
        session.start()
    assert capfd.readouterr().err == ""


def test_an_address_of_ray_client_is_refused_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(SettingError, match=r"Ray Client.*HOST:6379.*icalib submit"):
        session.start("ray://head:10001")


def test_an_error_of_rays_own_is_one_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.exceptions import AuthenticationError

    def refused(**options: object) -> None:
        raise AuthenticationError("no token")

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", refused)
    monkeypatch.setattr(session, "protect_token", lambda note, create: None)
    message = r"can't join .*no token.*RAY_AUTH_MODE=token"
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(SettingError, match=message):
        session.start(f"127.0.0.1:{server.getsockname()[1]}")


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


@pytest.mark.parametrize("above", ["/tmp", "/a/folder/that/leaves/no/room/for/sockets", None])
def test_a_local_ray_writes_to_a_folder_of_this_user_only(above: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **options: found.append(options["_temp_dir"]))
    monkeypatch.setattr("ray.shutdown", lambda: None)
    monkeypatch.setattr(session, "protect_token", lambda note, create: None)
    for name in ("RAY_ADDRESS", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR" if above else "RAY_TMPDIR", above or "/mine")
    session.start()
    if above is None:
        assert found == [None]  # Ray reads it
        return
    assert found[0]
    private = Path(found[0]).parent
    assert (private.parent, private.stat().st_mode & 0o777) == (Path("/tmp"), 0o700)
    session.stop()
    assert not private.exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray keeps the token, in a home folder without one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    earlier = os.umask(0o022)
    yield tmp_path / ".ray"
    os.umask(earlier)


def test_the_folder_of_the_token_is_made_for_this_user_only(folder: Path) -> None:
    notes: list[str] = []
    protect_token(notes.append, create=False)
    assert not folder.exists()
    protect_token(notes.append, create=True)
    assert (folder.stat().st_mode & 0o777, notes) == (0o700, [])


def test_wide_permissions_are_repaired_with_a_message(folder: Path) -> None:
    folder.mkdir()
    token, notes = folder / "auth_token", list[str]()
    token.touch()
    for _ in range(2):
        protect_token(notes.append, create=False)
    assert [path.stat().st_mode & 0o777 for path in (folder, token)] == [0o700, 0o600]
    assert notes == [
        f"{folder} was accessible to other users (mode 0755); changed to 0700",
        f"{token} was accessible to other users (mode 0644); changed to 0600",
    ]


def test_the_file_that_the_environment_names_is_made_readable_by_this_user_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.with_name("copy").touch()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(folder.with_name("copy")))
    protect_token(print, create=True)
    assert (folder.with_name("copy").stat().st_mode & 0o777, folder.exists()) == (0o600, False)


@pytest.mark.parametrize("variable", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"])
def test_another_token_leaves_the_home_folder_alone(
    folder: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "disabled")
    protect_token(print, create=True)
    assert not folder.exists()


HEAD = (0, 0)
Cluster = Callable[..., None]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Makes Ray report nodes with so many (cores, GPUs), and one that died."""
    return lambda *nodes: pretend(monkeypatch, nodes)


def pretend(patch: pytest.MonkeyPatch, nodes: Sequence[tuple[int, int]]) -> None:
    import ray

    place = {"NodeManagerHostname": "host", "NodeManagerAddress": "127.0.0.1", "Alive": True}
    alive = [
        {"NodeID": str(index), "Resources": {"CPU": float(cpus), "GPU": float(gpus)}, **place}
        for index, (cpus, gpus) in enumerate(nodes)
    ]
    dead = {"NodeID": "dead", "Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
    patch.setattr(ray, "nodes", lambda: [*alive, dead])
    patch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "0"))


@pytest.mark.parametrize(
    ("nodes", "workers", "planned"),
    [
        ([(2, 0)], None, (1, False, 2, 2)),
        ([HEAD, (4, 0), (4, 0)], None, (1, False, 4, 8)),  # a worker never spans nodes
        ([HEAD, (4, 0), (4, 0)], 2, (2, False, 4, 8)),
        ([HEAD, (4, 0), (4, 0)], 3, (3, False, 2, 8)),
        ([HEAD, (3, 0), (1, 0)], 2, (2, False, 1, 4)),
        ([HEAD, (64, 0), (8, 1), (8, 1)], None, (2, True, 7, 2, 1, 80)),  # models leave the node without GPU alone
        ([HEAD, (16, 8)], None, (8, True, 1, 8, 1, 16)),
        ([HEAD, (96, 8)], None, (8, True, 8, 8, 1, 96)),
        ([HEAD, (1, 1)], None, (1, True, 1, 1, 1, 1)),
    ],
)
def test_workers_get_the_cores_that_their_node_has_for_them(
    cluster: Cluster, nodes: list[tuple[int, int]], workers: int | None, planned: tuple[int, ...]
) -> None:
    cluster(*nodes)
    assert available(workers) == Resources(*planned)


@given(
    nodes=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4)), min_size=1, max_size=5), workers=st.integers(1, 9)
)
def test_what_is_planned_fits(nodes: list[tuple[int, int]], workers: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, nodes)
        try:
            resources = available(workers)
        except SettingError as error:
            assert "do not fit" in str(error)  # noqa: PT017
        else:
            assert room_for_workers(resources) >= resources.num_workers == workers


def test_the_death_of_the_driver_s_own_node_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster((2, 0))
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "dead"))
    with pytest.raises(ClusterError, match=r"`raylet` on this machine has died.*same command again"):
        room_for_workers(Resources(1, False, 1, 1))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [HEAD, (2, 0), (1, 0)],
            r"9 training workers do not fit: the cluster has 3 CPU cores for them\. .* --workers 3 or fewer",
        ),
        ([HEAD, (2, 1), (64, 0)], "the cluster has 1 GPUs"),
        ([HEAD], r"the cluster has 0 CPU cores for them\. Add nodes\.$"),
    ],
)
def test_more_workers_than_fit_are_refused(cluster: Cluster, nodes: list[tuple[int, int]], message: str) -> None:
    cluster(*nodes)
    with pytest.raises(SettingError, match=message):
        available(9)


@pytest.mark.parametrize(
    ("workers", "concurrent", "planned", "trials"),
    [
        (None, None, (1, True, 3, 1, 1, 4), 4),
        (None, 2, (1, True, 7, 2, 1, 8), 2),
        (2, None, (2, True, 3, 2, 1, 8), 2),
        (None, 5, (1, True, 2, 1, 2, 3), 5),
        (None, 12, (1, True, 1, 1, 3, 1), 12),
    ],
)
def test_more_trials_than_gpus_share_them(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    workers: int | None,
    concurrent: int | None,
    planned: tuple[int, bool, int, int, int, int],
    trials: int,
) -> None:
    monkeypatch.setattr("ray.cluster_resources", lambda: {"memory": 2.0**40})
    cluster(HEAD, (8, 2), (8, 2))
    resources, at_once = available_to_trials(workers, concurrent)
    assert (resources, at_once) == (Resources(*planned), trials)
    assert resources.workers_per_gpu * round(resources.num_gpus * 10_000) <= 10_000  # as Ray counts
    assert room_for_workers(resources) >= trials * resources.num_workers


@pytest.mark.parametrize(
    ("nodes", "reserved", "planned"),
    [
        ([(4, 0), (4, 0)], "0", (1, False, 4, 8)),
        ([(4, 0), (4, 0)], "1", (1, False, 4, 7)),  # the worker runs on the idle node
        ([HEAD, (4, 0)], "1", (1, False, 3, 3)),  # a head without cores can't run the driver
        ([(2, 0)], "1", (1, False, 1, 1)),
    ],
)
def test_trainings_do_not_use_the_cores_of_a_jobs_own_process(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[tuple[int, int]],
    reserved: str,
    planned: tuple[int, bool, int, int],
) -> None:
    monkeypatch.setenv(DRIVER_CPUS, reserved)
    cluster(*nodes)
    assert available() == Resources(*planned)
