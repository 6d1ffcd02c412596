"""The Ray Serve application: gateway and models in Ray Serve's local testing mode, and the whole on a Ray."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from distributed.drivers import free_port
from helpers.asgi import ask
from helpers.runs import run_context, small_settings
from pydantic import ValidationError

from icalib.core.errors import SettingError
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import run

serve = pytest.importorskip("ray.serve", reason="needs ray[serve]")

TOKEN = "0123456789abcdef"
TEXTS = ["block the card", "hello"]


@pytest.fixture(scope="module")
def trained(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(small_settings("bert", tiny_pools, tiny_bert), run_context(tmp_path_factory.mktemp("runs"))).path


@pytest.mark.filterwarnings("ignore")
def test_the_gateway_answers_with_the_scores_of_the_ranker(trained: Path, tmp_path: Path) -> None:
    from icalib.distributed.serving import Gateway, Ranker

    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    ranker = serve.run(serve.deployment(Ranker).bind(str(trained)), _local_testing_mode=True)
    gateway = Gateway(ranker, {"run": str(trained), "token_file": str(tmp_path / "token")})
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
        Gateway(None, {"run": str(trained)})
    with pytest.raises(ValidationError, match="limit"):
        build({"run": str(trained), "limit": {}})


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.nightly
def test_a_server_on_ray_answers_and_says_nothing_more_when_it_is_stopped(trained: Path) -> None:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "icalib", "serve", str(trained), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # background jobs ignore it
    )
    assert server.stdout
    try:
        url = f"http://127.0.0.1:{port}"
        assert url in server.stdout.readline()
        asked = json.dumps({"query": "my card is lost", "texts": TEXTS}).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/rerank", asked, headers), timeout=60) as answer:
            ranked = json.load(answer)
        assert {one["index"] for one in ranked} == {0, 1}
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=60)[0].splitlines() == ["stopped"]
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0
