"""cluster/local.sh for real: several nodes on loopback, with a token; nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.manifests import CLUSTER, NO_TELEMETRY
from helpers.ports import free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class Local:
    """cluster/local.sh with a state folder of its own."""

    def __init__(self, home: Path) -> None:
        self.state = home / "icalib" / "local-cluster"
        narrow = {"COLUMNS": "20"}  # `ps` cuts what it prints where this is set
        self._environment = {**os.environ, **narrow, "XDG_STATE_HOME": str(home)}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        script = CLUSTER / "local.sh"
        return subprocess.run([script, *words], env=self._environment, capture_output=True, text=True, timeout=240)

    def processes(self) -> list[psutil.Process]:
        """Everything in the session of the nodes."""
        session = int((self.state / "pid").read_text())
        return [process for process in psutil.process_iter() if _session(process) == session]


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


def _is_zombie(process: psutil.Process) -> bool:
    """Ended, but its exit code has not been read yet; containers often lack an init process that does so."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    script = Local(tmp_path)
    yield script
    script("down")


def status_of(url: str, token: str | None, posted: dict[str, Any] | None = None) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = json.dumps(posted).encode() if posted else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def listening_at(process: psutil.Process) -> list[str]:
    """Where a process listens; nowhere if it has just ended, such as the job's."""
    with suppress(psutil.NoSuchProcess):
        found = process.net_connections()
        return [connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN]
    return []


def test_two_nodes_come_up_on_loopback_with_a_token_and_go(local: Local) -> None:
    port, dashboard = free_port(), free_port()
    up = local("up", "--nodes", "2", "--cpus", "1", "--port", str(port), "--dashboard-port", str(dashboard))
    assert up.returncode == 0, up.stderr
    exports = dict(re.findall(r"^export (\w+)=(\S+)", up.stdout, flags=re.MULTILINE))
    token = Path(exports["RAY_AUTH_TOKEN_PATH"])
    assert exports["RAY_ADDRESS"] == f"127.0.0.1:{port}"
    assert exports["RAY_API_SERVER_ADDRESS"] == f"http://127.0.0.1:{dashboard}"
    assert exports["RAY_AUTH_MODE"] == "token"
    assert NO_TELEMETRY.items() <= exports.items()
    assert token.stat().st_mode & 0o777 == 0o600

    jobs = f"{exports['RAY_API_SERVER_ADDRESS']}/api/jobs/"
    assert status_of(jobs, token.read_text()) == 200
    assert status_of(jobs, None) == 401
    assert status_of(jobs, "0" * 64) == 403
    assert status_of(jobs, token.read_text(), {"entrypoint": "true", "entrypoint_num_cpus": 1}) == 200

    processes = local.processes()
    listening = [ip for process in processes for ip in listening_at(process)]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}

    nodes = (
        "import ray; ray.init(logging_level='ERROR'); print(*sorted(n['Resources'].get('CPU', 0) for n in ray.nodes()))"
    )
    joined = subprocess.run(
        [sys.executable, "-c", nodes], env={**os.environ, **exports}, capture_output=True, text=True
    )
    assert joined.stdout.split() == ["0", "1.0", "1.0"], joined.stderr

    again = local("up")
    assert (again.returncode, again.stdout) == (0, up.stdout)

    assert local("down").returncode == 0
    _, alive = psutil.wait_procs([process for process in processes if not _is_zombie(process)], timeout=5)
    assert alive == []
    assert {path.name for path in local.state.iterdir()} == {"nodes.log", "token"}
    assert local("status").returncode == 1
