"""Jobs on a real head that listens on loopback and asks for a token: submitted, left, rejoined, done."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
import yaml
from helpers.ports import free_ports

from icalib.data.pools import read_pool_set
from icalib.data.simulate import simulate

pytestmark = [pytest.mark.ray, pytest.mark.slow]

BIN = Path(sys.executable).parent
WAIT_S = 180.0


@dataclass(frozen=True)
class Head:
    """A running head, and what a client needs."""

    address: str
    token: str
    environment: dict[str, str]

    def icalib(self, *words: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "icalib"), *map(str, words), "--address", self.address]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment or self.environment, timeout=WAIT_S, check=False
        )

    def details(self, job_id: str) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.address}/api/jobs/{job_id}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A head of two cores with token authentication, started as a user would."""
    folder = tmp_path_factory.mktemp("head")
    token = secrets.token_hex(32)
    (folder / "token").write_text(token)
    (folder / "token").chmod(0o600)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),  # no other token is found
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
    }
    scratch = tempfile.mkdtemp(prefix="icalib-", dir="/tmp")  # paths of Ray's sockets must stay below 107 bytes
    gcs, dashboard, client, agent = free_ports(4)
    command = [
        "ray", "start", "--head", "--block", f"--port={gcs}", f"--dashboard-port={dashboard}",
        "--dashboard-host=127.0.0.1", f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}",
        "--min-worker-port=0", "--max-worker-port=0", "--num-cpus=2", "--object-store-memory=150000000",
        f"--temp-dir={scratch}", "--disable-usage-stats",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([str(BIN / command[0]), *command[1:]], env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{dashboard}"
        wait_until(lambda: answers(f"{address}/api/version"), lambda: (folder / "log").read_text())
        yield Head(address, token, environment)
    finally:
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            one.kill()
        process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return True


def wait_until(happened: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, told()
        time.sleep(0.2)


def lines_until(stream: IO[str], part: str) -> list[str]:
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if part in line:
            return lines
    raise AssertionError(f"no {part!r} in {lines}")


def driver_of(path: Path) -> psutil.Process | None:
    """The process of the job that writes to a path."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["-m", "icalib"] and str(path) in words:
            return process
    return None


@pytest.fixture(scope="module")
def prepare_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A job file that prepares a small corpus, and where the pools go."""
    folder = tmp_path_factory.mktemp("jobs")
    simulate(folder / "dialogues.jsonl", num_dialogues=30, seed=3)
    job = {
        "verb": "prepare",
        "arguments": [str(folder / "dialogues.jsonl")],
        "options": {"out": str(folder / "pools"), "candidates": 4, "labelled": 0.3},
        "resources": {"memory": "100MiB"},
        "environment": {"TOKENIZERS_PARALLELISM": "true"},  # which icalib sets for its workers too
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder / "job.yaml", folder / "pools"


def test_a_job_is_left_rejoined_and_done(head: Head, prepare_job: tuple[Path, Path]) -> None:
    job, pools = prepare_job
    command = [str(BIN / "icalib"), "submit", str(job), "--address", head.address]
    left = subprocess.Popen(
        command,
        env=head.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )
    assert left.stderr is not None
    told = lines_until(left.stderr, "running")
    job_id = told[0].removeprefix("submitted ").strip()
    wait_until(lambda: driver_of(pools) is not None, lambda: "no driver")
    driver = driver_of(pools)
    assert driver is not None
    driver.suspend()  # so that it is running still when it is rejoined
    left.send_signal(signal.SIGINT)
    assert left.wait(WAIT_S) == 130
    assert f"icalib jobs logs {job_id} --follow --address {head.address}" in left.stderr.read()

    rejoined = subprocess.Popen(
        command, env=head.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert rejoined.stderr is not None
    lines_until(rejoined.stderr, f"{job_id} is running already; rejoining it")
    driver.resume()
    out, err = rejoined.communicate(timeout=WAIT_S)
    assert rejoined.returncode == 0, out + err
    assert f"{job_id} succeeded" in err
    assert "Running entrypoint" in out  # the log comes from its start
    assert read_pool_set(pools).num_pools["train"] > 0
    assert head.details(job_id)["driver_info"] is not None  # it joined this cluster, and started no Ray of its own

    again = head.icalib("submit", job)
    assert again.returncode == 0
    assert f"{job_id} has succeeded already" in again.stderr
    listed = json.loads(head.icalib("jobs", "--json").stdout)
    assert [(one["id"], one["state"]) for one in listed] == [(job_id, "succeeded")]
    assert head.icalib("jobs", "logs", job_id).stdout.strip() in out + "\n"
    assert "has already ended: succeeded" in head.icalib("jobs", "stop", job_id).stderr


def test_the_exit_code_is_the_jobs(head: Head, tmp_path: Path) -> None:
    job = {"verb": "report", "arguments": ["/nowhere"], "options": {"out": "/nowhere/report.html"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    failed = head.icalib("submit", tmp_path / "job.yaml", "--set", "resources.memory=100MiB")
    assert failed.returncode == 2
    assert "/nowhere is not a run folder" in failed.stdout
    assert "exit code 2" in failed.stderr.splitlines()[-1]


@pytest.mark.parametrize("token", [None, "0" * 64, ""])
def test_nothing_without_the_token(
    head: Head, prepare_job: tuple[Path, Path], tmp_path: Path, token: str | None
) -> None:
    environment = {name: value for name, value in head.environment.items() if not name.startswith("RAY_AUTH")}
    if token is not None:
        (tmp_path / "token").write_text(token)
        (tmp_path / "token").chmod(0o600)  # another mode would be changed, with a line that says so
        environment["RAY_AUTH_TOKEN_PATH"] = str(tmp_path / "token")
    refused = head.icalib("submit", prepare_job[0], environment=environment)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "requires a token" in refused.stderr
    assert "set RAY_AUTH_TOKEN_PATH to it" in refused.stderr
    assert "Traceback" not in refused.stderr
