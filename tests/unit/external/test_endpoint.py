from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icalib
from icalib.core.errors import DamagedFileError, ServiceError, SettingError
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import NONE_RIGHT, Pool
from icalib.data.simulate import simulate
from icalib.external import endpoint as module
from icalib.external.collect import collect_scores
from icalib.external.endpoint import Endpoint
from icalib.external.labelled import read_labelled
from icalib.external.score_file import ScoreFile


class Service(ThreadingHTTPServer):
    """A reranker whose score of a text is its length, or what `answer` says."""

    def __init__(self) -> None:
        self.protocol = "tei"
        self.requests: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.failures: list[int] = []
        self.answer: bytes | None = None
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/rerank"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((body, dict(self.headers)))
        if self.server.failures:
            self._reply(self.server.failures.pop(0), b"busy")
            return
        texts = body.get("texts" if self.server.protocol == "tei" else "documents")
        if texts is None:
            self._reply(422, b'{"error": "missing field"}')
            return
        by_score = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        name = "score" if self.server.protocol == "tei" else "relevance_score"
        found: Any = [{"index": index, name: len(texts[index]) / 100} for index in by_score]
        found = found if self.server.protocol == "tei" else {"id": "1", "results": found, "meta": {}}
        self._reply(200, self.server.answer or json.dumps(found).encode())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    found = Service()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


TEXTS = ["x" * length for length in (3, 1, 7)]


def test_text_embeddings_inference_is_asked_for_raw_scores(service: Service) -> None:
    endpoint = Endpoint(service.url, token="secret")
    assert endpoint.scores("hello", TEXTS) == pytest.approx([0.03, 0.01, 0.07])
    assert endpoint.protocol == "tei"
    body, headers = service.requests[-1]
    assert body == {"query": "hello", "texts": TEXTS, "raw_scores": True, "truncate": True}
    assert headers["Authorization"] == "Bearer secret"


def test_cohere_is_detected(service: Service) -> None:
    service.protocol = "cohere"
    endpoint = Endpoint(service.url, model="rerank-v4")
    assert endpoint.scores("hello", TEXTS) == pytest.approx([0.03, 0.01, 0.07])
    assert endpoint.protocol == "cohere"
    assert service.requests[-1][0] == {"model": "rerank-v4", "query": "hello", "documents": TEXTS, "top_n": 3}


def test_many_candidates_are_several_requests(service: Service) -> None:
    texts = ["x" * length for length in range(1, 71)]
    endpoint = Endpoint(service.url, protocol="tei")
    assert endpoint.scores("hello", texts) == pytest.approx(np.arange(1, 71) / 100)
    assert [len(body["texts"]) for body, _ in service.requests] == [32, 32, 6]


def test_a_busy_service_is_asked_again(service: Service) -> None:
    service.failures = [503, 429]
    assert Endpoint(service.url, protocol="tei").scores("hello", TEXTS) == pytest.approx([0.03, 0.01, 0.07])


@pytest.mark.parametrize(
    ("failures", "answer", "message"),
    [
        ([401], None, r"can't be used \(status 401: busy\).*--token-variable"),
        ([302], None, r"can't be used \(status 302"),
        ([503] * 4, None, r"can't be used \(status 503: busy\)"),
        ([400], None, r"refused a request \(status 400: busy\)"),
        ([], b"<html>", "answered with something that is not JSON"),
        ([], b'[{"index": 0, "score": 1}]', "expected a finite score for each of 3 texts"),
        ([], b'{"results": []}', "expected a finite score for each of 3 texts"),
        ([], b'[{"index": 0, "score": NaN}, {"index": 1, "score": 1}, {"index": 2, "score": 1}]', "a finite score"),
        ([], b'[{"index": 0, "score": 1' + b"0" * 400 + b"}]", "expected a finite score for each of 3 texts"),
        ([], b"[" * 100_000, "answered with something that is not JSON"),
    ],
)
def test_what_fails_is_said(service: Service, failures: list[int], answer: bytes | None, message: str) -> None:
    service.failures, service.answer = failures, answer
    with pytest.raises(ServiceError, match=message):
        Endpoint(service.url, protocol="tei").scores("hello", TEXTS)


def test_a_service_that_speaks_neither_protocol_is_refused(service: Service) -> None:
    service.failures = [404, 404]
    with pytest.raises(ServiceError, match="refused both protocols"):
        Endpoint(service.url).scores("hello", TEXTS)


def test_an_address_that_nobody_listens_at_is_named(service: Service) -> None:
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9/rerank can't be used"):
        Endpoint("http://127.0.0.1:9/rerank", protocol="tei").scores("hello", TEXTS)
    for url in ("file:///etc/passwd", "localhost:80", ""):
        with pytest.raises(SettingError, match="is not a URL of a service"):
            Endpoint(url)


def pools(count: int) -> list[Pool]:
    context = ({"speaker": "user", "text": "it hums"}, {"speaker": "agent", "text": "since when?"})
    rows = [
        {"pool_id": f"p{index}", "dialog_id": "d", "split": "test", "context": context, "candidates": TEXTS, "label": 2}
        for index in range(count)
    ]
    return [Pool.model_validate({"domain": "", "label_order": -1, **row}) for row in rows]


def test_an_interrupted_collection_resumes(service: Service, tmp_path: Path) -> None:
    endpoint, inputs = Endpoint(service.url, protocol="tei"), {"endpoint": service.url, "data": "digest"}
    seen: list[tuple[int, int]] = []
    collect_scores(endpoint, pools(3), tmp_path, inputs, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert service.requests[0][0]["query"] == "it hums\nsince when?"
    with (tmp_path / "scores.jsonl").open("a") as file:
        file.write('{"pool_id": "p3", "sco')  # killed while writing
    service.requests.clear()
    path = collect_scores(endpoint, pools(5), tmp_path, inputs, lambda done, total: None)
    assert len(service.requests) == 2
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["pool_id"] for row in rows] == ["p0", "p1", "p2", "p3", "p4"]
    assert rows[4] == {"pool_id": "p4", "scores": [0.03, 0.01, 0.07], "label": [0, 0, 1]}
    for damaged in ("[\n", "[]\n", '{"pool_id": []}\n'):
        path.write_text(damaged)
        with pytest.raises(DamagedFileError, match="has a line that can't be read: 1"):
            collect_scores(endpoint, pools(5), tmp_path, inputs, lambda done, total: None)
    with pytest.raises(SettingError, match="has scores of another data"):
        collect_scores(endpoint, pools(5), tmp_path, {**inputs, "data": "other"}, lambda done, total: None)


def test_pools_without_a_right_candidate_are_labelled(service: Service, tmp_path: Path) -> None:
    found = [pool.model_copy(update={"label": label}) for pool, label in zip(pools(2), (0, NONE_RIGHT), strict=True)]
    path = collect_scores(Endpoint(service.url, protocol="tei"), found, tmp_path, {}, lambda done, total: None)
    labelled = read_labelled(ScoreFile.open(path, {}))
    assert labelled.pools.label.tolist() == [1, 0, 0, 0, 0, 0]
    assert labelled.num_unlabelled == 0


def test_all_labelled_pools_of_a_folder_are_scored(service: Service, tmp_path: Path) -> None:
    """A quarter of the pools has no right candidate, and no label is unknown."""
    simulate(tmp_path / "dialogues.jsonl", num_dialogues=60, seed=5)
    prepare(tmp_path / "dialogues.jsonl", tmp_path / "pools", PrepareSettings(num_candidates=4, unanswerable=0.25))
    icalib.calibrate(None, tmp_path / "out", endpoint=service.url, data=tmp_path / "pools", split="train")
    num_pools = read_pool_set(tmp_path / "pools").num_pools["train"]
    assert len((tmp_path / "out" / "scores.jsonl").read_text().splitlines()) == num_pools


def test_a_service_is_calibrated_on_the_pools_of_a_folder(service: Service, tiny_pools: Path, tmp_path: Path) -> None:
    found = icalib.calibrate(None, tmp_path / "out", endpoint=service.url, data=tiny_pools, split="train", limit=40)
    assert found.calibration.num_fitted == 20
    assert found.calibrator.scale == "probability"
    assert len((tmp_path / "out" / "scores.jsonl").read_text().splitlines()) == 40
    asked = len(service.requests)
    again = icalib.calibrate(None, tmp_path / "out", endpoint=service.url, data=tiny_pools, split="train", limit=40)
    assert again.calibrator == found.calibrator
    assert len(service.requests) == asked
