"""The Ray Serve application: gateway and models in Ray Serve's local testing mode, and the whole on a Ray."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray
from distributed.drivers import wait_for
from helpers.asgi import ask
from helpers.ports import free_port
from helpers.runs import run_context, small_settings
from pydantic import ValidationError
from ray.util.placement_group import placement_group, remove_placement_group

from icalib.core.errors import RunFolderError, SettingError
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import run
from icalib.serving.limits import DEFAULT_LIMITS

serve = pytest.importorskip("ray.serve", reason="needs ray[serve]")

TOKEN = "0123456789abcdef"
TEXTS = ["block the card", "hello"]
LOCAL = {"host": "127.0.0.1"}


@pytest.fixture(scope="module")
def trained(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(small_settings("bert", tiny_pools, tiny_bert), run_context(tmp_path_factory.mktemp("runs"))).path


@pytest.mark.filterwarnings("ignore")
def test_the_gateway_answers_with_the_scores_of_the_ranker(trained: Path, tmp_path: Path) -> None:
    from icalib.distributed.serving import Gateway, Ranker

    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    digest = FinishedRun.open(trained).digest
    ranker = serve.run(serve.deployment(Ranker).bind(str(trained), digest), _local_testing_mode=True)
    gateway = Gateway(ranker, {"run": str(trained), "token_file": str(tmp_path / "token")}, digest)
    deployed = gateway.__serve_build_asgi_app__()
    asked = {"query": "my card is lost", "texts": TEXTS}
    answer = ask(deployed, "/rerank", asked, headers={"authorization": f"Bearer {TOKEN}"})
    expected = LoadedRanker.load(trained).rank(["my card is lost"], TEXTS)
    assert answer.status == 200
    assert answer.value == [{"index": one.index, "score": one.prob} for one in expected]
    assert ask(deployed, "/rerank", asked, headers={"authorization": "Bearer another"}).status == 401


@pytest.mark.filterwarnings("ignore")
def test_a_gateway_that_others_reach_requires_a_token(trained: Path) -> None:
    from icalib.distributed.serving import Gateway, build

    with pytest.raises(SettingError, match="without a token"):
        Gateway(None, {"run": str(trained)}, "")
    with pytest.raises(ValidationError, match="limit"):
        build({"run": str(trained), "limit": {}})


@pytest.mark.filterwarnings("ignore")
def test_a_replica_that_starts_later_does_not_serve_another_run_that_the_folder_has_then(
    trained: Path, tmp_path: Path
) -> None:
    from icalib.distributed.serving import Gateway, Ranker

    digest = FinishedRun.open(trained).digest
    folder = Path(shutil.copytree(trained, tmp_path / trained.name))
    (folder / "files.json").unlink()
    fitted = json.loads((folder / "fitted.json").read_text())
    (folder / "fitted.json").write_text(json.dumps({**fitted, "decision_threshold": 0.123}))
    for start in (lambda: Ranker(str(folder), digest), lambda: Gateway(None, LOCAL | {"run": str(folder)}, digest)):
        with pytest.raises(RunFolderError, match=r"has changed since the server was started.*Restart the server"):
            start()
    changed = FinishedRun.open(folder).digest
    assert Ranker(str(folder), changed)
    assert Gateway(None, LOCAL | {"run": str(folder)}, changed)


@pytest.mark.filterwarnings("ignore")
def test_a_question_is_refused_where_no_copy_of_the_models_will_answer(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from icalib.distributed.serving import Gateway

    class Never:
        """A handle of replicas of which none runs."""

        asked: ClassVar[list[asyncio.Future[Any]]] = []

        @property
        def score(self) -> Never:
            return self

        def remote(self, pool: object) -> asyncio.Future[Any]:
            self.asked.append(asyncio.get_running_loop().create_future())
            return self.asked[-1]

    said = iter(["", "", "the run has changed", "", "the run has changed"])
    monkeypatch.setattr("icalib.distributed.serving._PATIENCE_S", 0.01)
    monkeypatch.setattr("icalib.distributed.serving._why_none_answers", lambda: next(said))
    gateway = Gateway(Never(), LOCAL | {"run": str(trained)}, FinishedRun.open(trained).digest)
    answer = ask(gateway.__serve_build_asgi_app__(), "/rerank", {"query": "my card is lost", "texts": TEXTS})
    assert answer.status == 503
    assert answer.value["error_type"] == "unhealthy"
    assert "no copy of the models is running" in answer.value["error"]
    assert [one.cancelled() for one in Never.asked] == [True]
    health = [ask(gateway.__serve_build_asgi_app__(), "/health", method="GET").status for _ in range(2)]
    assert health == [200, 503]


def serve_actors() -> list[str]:
    """Names of Ray Serve's actors on the cluster; in this process its own functions would remember a stopped Serve."""
    actors: Any = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["namespace"] == "serve"]


def replicas(deployment: str) -> list[str]:
    return [name for name in serve_actors() if deployment in name]


@contextmanager
def server(trained: Path, port: int, address: str = "") -> Generator[subprocess.Popen[str], None, None]:
    """`icalib serve` on the cluster at an address, else on a local Ray of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "icalib", "serve", str(trained), "--port", str(port)],
        env={**os.environ, "RAY_ADDRESS": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # background jobs ignore it
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def last_line_of_the_start(process: subprocess.Popen[str]) -> str:
    """Read the lines that say how long Ray Serve has been starting, and return the next one."""
    assert process.stdout
    return next(line for line in process.stdout if not line.startswith("Ray Serve"))


def test_the_free_port_of_a_server_on_ray_would_be_unknown(trained: Path) -> None:
    from icalib.distributed.serving import serve_on_ray

    with pytest.raises(SettingError, match="--port 0"):
        serve_on_ray(trained, "127.0.0.1", 0, DEFAULT_LIMITS, None, None, nullcontext(), print)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
def test_a_server_on_ray_answers_and_says_nothing_more_when_it_is_stopped(trained: Path) -> None:
    port = free_port()
    with server(trained, port) as process:
        url = f"http://127.0.0.1:{port}"
        assert url in last_line_of_the_start(process)
        asked = json.dumps({"query": "my card is lost", "texts": TEXTS}).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/rerank", asked, headers), timeout=60) as answer:
            ranked = json.load(answer)
        assert {one["index"] for one in ranked} == {0, 1}
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0].splitlines() == ["stopped"]
    assert process.returncode == 0


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
def test_a_second_server_on_a_cluster_is_refused_and_the_first_goes_on(local_ray: None, trained: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    with server(trained, free_port(), address) as first:
        assert "Ctrl-C stops it" in last_line_of_the_start(first)
        with server(trained, free_port(), address) as second:
            assert "Ray Serve runs on this cluster already" in second.communicate(timeout=120)[0]
        assert second.returncode == 2
        assert replicas("Ranker")
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 0
    assert not serve_actors()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
def test_what_a_stopped_job_left_is_cleared_away(local_ray: None, trained: Path) -> None:
    """Ray kills a job's process a few seconds after it asked it to stop."""
    address = ray.get_runtime_context().gcs_address
    with server(trained, free_port(), address) as first:
        assert "Ctrl-C stops it" in last_line_of_the_start(first)
        first.send_signal(signal.SIGTERM)
        wait_for(lambda: not replicas("Gateway"), lambda: first.poll() is None)
    assert serve_actors()
    with server(trained, free_port(), address) as second:
        assert "Ctrl-C stops it" in last_line_of_the_start(second)
        second.send_signal(signal.SIGINT)
        assert second.wait(60) == 0
    assert not serve_actors()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
def test_a_server_that_can_not_start_says_why(local_ray: None, trained: Path, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    with socket.create_server(("127.0.0.1", 0)) as taken, server(trained, taken.getsockname()[1], address) as process:
        assert "Choose another --host or --port" in process.communicate(timeout=120)[0]
    assert process.returncode == 2
    edited = Path(shutil.copytree(trained, tmp_path / trained.name))
    (edited / "files.json").unlink()
    (edited / "checkpoints/final/cross/model.safetensors").write_bytes(b"half")
    with server(edited, free_port(), address) as process:
        assert "final/cross can't be read" in process.communicate(timeout=120)[0]
    assert process.returncode == 2
    assert not serve_actors()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
def test_a_server_that_finds_no_room_can_be_stopped_and_leaves_nothing(local_ray: None, trained: Path) -> None:
    everything = placement_group([{"CPU": 2}])
    try:
        ray.get(everything.ready())
        with server(trained, free_port(), ray.get_runtime_context().gcs_address) as process:
            wait_for(lambda: bool(replicas("Gateway")), lambda: process.poll() is None)  # those of models wait
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        assert not serve_actors()
    finally:
        remove_placement_group(everything)
