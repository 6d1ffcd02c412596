"""A finished run behind HTTP: the protocols, limits, errors, and the same numbers as `predict`."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi import FastAPI
from helpers.asgi import SCOPE, Answered, ask, ask_all, ask_async
from helpers.runs import run_context, small_settings

from icalib.data.schema import Pool
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.loaded_ranker import LoadedRanker
from icalib.pipeline.run import run
from icalib.serving.application import create_app
from icalib.serving.limits import Limits
from icalib.serving.local import Ending
from icalib.serving.served_run import Batcher, QuestionScorer

QUERY = "my card is lost"
TEXTS = ["block the card", "hello", "which card", "good bye"]
PATHS = {"/rerank": "texts", "/v2/rerank": "documents", "/v1/rerank": "documents", "/predict": "candidates"}


@pytest.fixture(scope="module")
def runs(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`bert` is deterministic, the other draws dropout masks."""
    context = run_context(tmp_path_factory.mktemp("runs"))
    found: dict[str, Path] = {}
    for method in ("bert", "icast-teacher"):
        changes = {} if method == "bert" else {"domain_pretraining": None}
        settings = small_settings(method, tiny_pools, tiny_bert, calibration="temperature", **changes)
        found[method] = run(settings, context).path
    return found


def application_of(path: Path, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    scorer = QuestionScorer.load(path)

    async def score(pool: Pool) -> pa.Table:
        return scorer.score([pool])[0]

    return create_app(FinishedRun.open(path), score, limits or Limits(), token)


@pytest.fixture(scope="module")
def application(runs: dict[str, Path]) -> FastAPI:
    return application_of(runs["bert"])


@pytest.fixture(scope="module")
def small(runs: dict[str, Path]) -> FastAPI:
    """It takes ten candidates."""
    return application_of(runs["bert"], Limits(max_candidates=10))


def body(path: str, texts: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    query = {"context": [QUERY]} if path == "/predict" else {"query": QUERY}
    return {**query, PATHS[path]: TEXTS if texts is None else texts, **fields}


def test_rerank_answers_as_text_embeddings_inference_does(application: FastAPI, runs: dict[str, Path]) -> None:
    expected = LoadedRanker.load(runs["bert"]).rank([QUERY], TEXTS)
    answer = ask(application, "/rerank", body("/rerank", return_text=True, truncate=True)).value
    assert [(item["index"], item["text"]) for item in answer] == [(one.index, one.text) for one in expected]
    assert [item["score"] for item in answer] == [one.prob for one in expected]
    raw = ask(application, "/rerank", body("/rerank", raw_scores=True)).value
    assert [item["score"] for item in raw] == [one.logit for one in expected]
    assert "text" not in raw[0]


@pytest.mark.parametrize("version", ["1", "2"])
def test_rerank_answers_as_cohere_does(version: str, application: FastAPI, runs: dict[str, Path]) -> None:
    expected = LoadedRanker.load(runs["bert"]).rank([QUERY], TEXTS)[:2]
    path = f"/v{version}/rerank"
    answer = ask(application, path, body(path, model="any", top_n=2)).value
    assert answer["results"] == [{"index": one.index, "relevance_score": one.prob} for one in expected]
    assert answer["meta"] == {"api_version": {"version": version}}
    assert ask(application, path, body(path, model=None, top_n=2)).value["results"] == answer["results"]
    with_objects = ask(application, path, body(path, [{"text": text} for text in TEXTS], return_documents=True)).value
    assert with_objects["results"][0]["document"] == {"text": expected[0].text}


@pytest.mark.parametrize("method", ["bert", "icast-teacher"])
def test_predict_gives_the_record_of_icalib_predict(method: str, runs: dict[str, Path]) -> None:
    context = [{"speaker": "user", "text": QUERY}, {"speaker": "agent", "text": "which card"}]
    question = {"context": context, "candidates": TEXTS, "id": "q7"}
    predicted = LoadedRanker.load(runs[method]).predict([question], max_error=0.97, confidence=0.6, sets=0.8)
    (expected,) = predicted.answers
    answer = ask(
        application_of(runs[method]), "/predict", {**question, "max_error": 0.97, "confidence": 0.6, "sets": 0.8}
    ).value
    assert {name: answer[name] for name in expected.record()} == expected.record()
    uncertain = np.array(answer["uncertainty"]["prob_std"])
    assert (uncertain > 0).all() == (method == "icast-teacher")
    assert answer["notes"] == predicted.notes
    unnamed = ask(application_of(runs[method]), "/predict", {**question, "id": None}).value
    assert unnamed["id"] == "1"


@pytest.mark.parametrize("method", ["bert", "icast-teacher"])
@pytest.mark.parametrize("joint", [False, True])
def test_numbers_do_not_depend_on_what_is_asked_at_the_same_time(
    method: str, joint: bool, runs: dict[str, Path]
) -> None:
    ranker = LoadedRanker.load(runs[method])
    scorer = QuestionScorer(ranker.run, ranker.members, joint)
    questions = [[" ".join(TEXTS[: 1 + index % 4]), *TEXTS[: 1 + index % 3]] for index in range(12)]
    alone = [[answer.prob for answer in ranker.rank([QUERY], question)] for question in questions]

    def served() -> list[Any]:
        batcher = Batcher(scorer.score, max_size=5)
        application = create_app(FinishedRun.open(runs[method]), batcher, Limits())
        return ask_all(application, [("/rerank", body("/rerank", question)) for question in questions])

    for answer, expected in zip(served(), alone, strict=True):
        found = [item["score"] for item in answer.value]
        if joint:
            assert found == pytest.approx(expected, abs=1e-6)
        else:
            assert found == expected


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("content", "status", "found"),
    [
        (b"{bad", 400, "not valid JSON"),
        (b"\xff\xfe\x00", 400, "not valid JSON"),
        (b"[" * 200_000, 400, "nested too deeply"),
        (b"[1]", 422, r"the body is \[1\]"),
        (b"{}", 422, "it is missing"),
        (b'"' + b"a" * 10_000_000 + b'"', 413, "more than 4194304 bytes"),
    ],
)
def test_bodies_that_are_no_requests(path: str, content: bytes, status: int, found: str, application: FastAPI) -> None:
    answer = ask(application, path, content)
    assert answer.status == status
    assert re.search(found, answer.value["message" if "/v" in path else "error"])
    assert answer.value.get("error_type") == ("validation" if path == "/rerank" else None)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([], "at least"),
        ([1, 2], "a string|a text, or an object with `text`"),
        (["\ud800", "a"], "unicode"),
        (["a"] * 11, "found 11 candidates. Expected at most 10"),
        ([1] * 11, "found 11 candidates. Expected at most 10"),
    ],
)
def test_texts_that_are_refused(path: str, texts: Any, found: str, small: FastAPI) -> None:
    answer = ask(small, path, body(path, texts))
    assert answer.status == (413 if "at most 10" in found else 422)
    assert re.search(found, answer.body.decode())


def test_texts_are_returned_as_they_were_sent(application: FastAPI) -> None:
    padded = [f"  {text}\n" for text in TEXTS]
    expected = ask(application, "/rerank", body("/rerank")).value
    found = ask(application, "/rerank", body("/rerank", padded, return_text=True)).value
    assert found == [{**one, "text": padded[one["index"]]} for one in expected]
    results = ask(application, "/v2/rerank", body("/v2/rerank", padded, return_documents=True)).value["results"]
    assert [one["document"]["text"] for one in results] == [padded[one["index"]] for one in expected]
    assert ask(application, "/predict", body("/predict", padded)).value["text"] == padded[expected[0]["index"]]


def test_a_context_of_too_many_utterances_is_refused(small: FastAPI) -> None:
    answer = ask(small, "/predict", {**body("/predict"), "context": [{"text": 1}] * 1001})
    assert (answer.status, "found 1001 utterances" in answer.value["error"]) == (422, True)


@pytest.mark.parametrize(
    "fields", [{"max_error": 2.0}, {"sets": 0.0}, {"sets": 0.999}, {"max_error": "half"}, {"max_err": 0.1}]
)
def test_a_coverage_that_cannot_be_reached_is_refused(fields: dict[str, Any], application: FastAPI) -> None:
    assert ask(application, "/predict", body("/predict", **fields)).status == 422


def test_nothing_is_scored_for_a_promise_that_cannot_be_given(runs: dict[str, Path]) -> None:
    async def score(pool: Pool) -> pa.Table:
        raise AssertionError("it was scored")

    application = create_app(FinishedRun.open(runs["bert"]), score, Limits())
    refused = ask(application, "/predict", body("/predict", max_error=0.0001))
    assert refused.status == 422
    assert str(runs["bert"]) not in refused.value["error"]  # a path of this machine


def test_a_content_type_that_pages_of_other_sites_can_send_is_refused(application: FastAPI) -> None:
    for content_type in ("", "text/plain", "application/x-www-form-urlencoded"):
        answer = ask(application, "/rerank", body("/rerank"), headers={"content-type": content_type})
        assert (answer.status, answer.value["error_type"]) == (415, "validation")
    assert ask(application, "/rerank", body("/rerank"), headers={"content-type": "application/json; a=b"}).status == 200


def test_a_name_that_a_page_of_another_site_gave_this_machine_is_refused_without_a_token(
    application: FastAPI, runs: dict[str, Path]
) -> None:
    for host in ("localhost", "LOCALHOST:8000", "localhost.:8000", "127.0.0.1:8000", "[::1]:8000"):
        assert ask(application, "/rerank", body("/rerank"), headers={"host": host}).status == 200
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        assert ask(application, "/rerank", body("/rerank"), headers={"host": host}).status == 403
    guarded = application_of(runs["bert"], token="0123456789abcdef")
    assert ask(guarded, "/health", method="GET", headers={"host": "ranker.example"}).status == 200


def test_unknown_paths_and_methods(application: FastAPI) -> None:
    missing = ask(application, "/v3/rerank", {})
    assert (missing.status, "/v2/rerank" in missing.value["error"]) == (404, True)
    wrong = ask(application, "/rerank", method="GET")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


def test_a_token_is_required_but_for_health(runs: dict[str, Path]) -> None:
    guarded = application_of(runs["bert"], token="0123456789abcdef")
    request = body("/rerank")
    assert ask(guarded, "/health", method="GET").status == 200
    assert ask(guarded, "/metrics", method="GET").status == 401
    assert ask(guarded, "/rerank", request).headers["www-authenticate"] == "Bearer"
    assert ask(guarded, "/rerank", request, headers={"authorization": "Bearer 0123456789abcdeF"}).status == 401
    assert ask(guarded, "/rerank", request, headers={"Authorization": "bearer 0123456789abcdef"}).status == 200


def test_more_requests_than_may_wait_are_refused(runs: dict[str, Path]) -> None:
    scorer = QuestionScorer.load(runs["bert"])

    async def slow(pool: Pool) -> pa.Table:
        await asyncio.sleep(0.1)
        return scorer.score([pool])[0]

    busy = create_app(FinishedRun.open(runs["bert"]), slow, Limits(max_pending=2))
    answers = ask_all(busy, [("/rerank", body("/rerank"))] * 5)
    assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429]
    assert ask(busy, "/rerank", body("/rerank")).status == 200


def test_a_request_that_may_not_wait_is_refused_before_its_body_is_read(runs: dict[str, Path]) -> None:
    busy = application_of(runs["bert"], Limits(max_pending=1))

    async def receive() -> Any:
        await asyncio.sleep(10)

    async def main() -> int:
        scope = {**SCOPE, "method": "POST", "path": "/rerank", "headers": [(b"content-type", b"application/json")]}
        first = asyncio.create_task(busy(scope, receive, receive))
        await asyncio.sleep(0)
        answer = await ask_async(busy, "/rerank", b"{bad")
        first.cancel()
        return answer.status

    assert asyncio.run(main()) == 429


def test_scores_are_not_computed_for_a_client_that_has_gone(runs: dict[str, Path]) -> None:
    stopped: list[bool] = []

    async def slow(pool: Pool) -> pa.Table:
        try:
            return await asyncio.sleep(10)
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    content, gone = json.dumps(body("/rerank")).encode(), {"type": "http.disconnect"}
    messages, sent = [{"type": "http.request", "body": content, "more_body": False}, gone], []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {**SCOPE, "method": "POST", "path": "/rerank", "headers": [(b"content-type", b"application/json")]}
    asyncio.run(create_app(FinishedRun.open(runs["bert"]), slow, Limits())(scope, receive, send))
    assert (stopped, sent[0]["status"]) == ([True], 499)


def test_a_failure_is_reported_without_its_details(runs: dict[str, Path]) -> None:
    async def fail(pool: Pool) -> pa.Table:
        raise RuntimeError("/secret/path")

    answer = ask(create_app(FinishedRun.open(runs["bert"]), fail, Limits()), "/v2/rerank", body("/v2/rerank"))
    assert answer.status == 500
    assert b"secret" not in answer.body


def test_a_slow_body_is_refused(runs: dict[str, Path]) -> None:
    slow = application_of(runs["bert"], Limits(body_timeout_s=0.05))
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(10)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {**SCOPE, "method": "POST", "path": "/rerank", "headers": [(b"content-type", b"application/json")]}
    asyncio.run(slow(scope, receive, send))
    assert sent[0]["status"] == 408


def test_serving_writes_nothing_to_the_storage_of_runs(runs: dict[str, Path]) -> None:
    """Which cluster/kuberay/rayservice.yaml mounts read-only."""
    storage = runs["bert"].parents[1]
    before = {path: path.stat().st_mtime_ns for path in (storage, *storage.rglob("*"))}
    for path in runs.values():
        assert ask(application_of(path), "/rerank", body("/rerank")).status == 200
    assert {path: path.stat().st_mtime_ns for path in (storage, *storage.rglob("*"))} == before


def test_answers_stay_those_of_the_run_that_was_loaded(runs: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / runs["bert"].name
    shutil.copytree(runs["bert"], path)
    question = body("/predict")
    asked = {**question, "sets": 0.5}
    served, ranker = application_of(path), LoadedRanker.load(path)
    shutil.rmtree(path)
    found = [ask(served, "/predict", asked).value["set"], ranker.predict([question], sets=0.5).answers[0].set]
    assert found == [ask(application_of(runs["bert"]), "/predict", asked).value["set"]] * 2


def test_a_request_that_a_stopping_server_can_not_wait_for_is_answered_in_its_apis_shape(runs: dict[str, Path]) -> None:
    async def slow(pool: Pool) -> pa.Table:
        return await asyncio.sleep(10)

    async def main() -> Answered:
        application = Ending(create_app(FinishedRun.open(runs["bert"]), slow, Limits()))
        asking = asyncio.create_task(ask_async(application, "/v2/rerank", body("/v2/rerank")))
        await asyncio.sleep(0.1)
        asking.cancel()
        return await asking

    answer = asyncio.run(main())
    assert (answer.status, set(answer.value)) == (503, {"id", "message"})


def test_info_and_metrics_show_requests(runs: dict[str, Path]) -> None:
    fresh = application_of(runs["bert"])
    ask(fresh, "/rerank", body("/rerank"))
    info = ask(fresh, "/info", method="GET").value
    assert info["method"] == "bert"
    metrics = ask(fresh, "/metrics", method="GET").body.decode()
    assert 'icalib_requests_total{path="/rerank",status="200"} 1.0' in metrics
    assert "icalib_best_probability_count 1.0" in metrics


@pytest.fixture(scope="module")
def server(runs: dict[str, Path]) -> Iterator[str]:
    """URL of a server in a thread."""
    uvicorn = pytest.importorskip("uvicorn")
    config = uvicorn.Config(
        application_of(runs["bert"], token="0123456789abcdef"), port=0, log_level="error", lifespan="on"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join()


@pytest.mark.parametrize("client", ["ClientV2", "Client"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_the_cohere_client_gets_our_probabilities(client: str, server: str, runs: dict[str, Path]) -> None:
    cohere = pytest.importorskip("cohere")
    expected = LoadedRanker.load(runs["bert"]).rank([QUERY], TEXTS)[:3]
    asked = getattr(cohere, client)(api_key="0123456789abcdef", base_url=server)
    results = asked.rerank(model="icalib", query=QUERY, documents=TEXTS, top_n=3).results
    assert [(one.index, one.relevance_score) for one in results] == [(one.index, one.prob) for one in expected]
    stranger = getattr(cohere, client)(api_key="another", base_url=server)
    with pytest.raises(cohere.UnauthorizedError, match="another token"):
        stranger.rerank(model="icalib", query=QUERY, documents=TEXTS)


@pytest.mark.filterwarnings("ignore")
def test_haystacks_ranker_gets_our_order_and_probabilities(
    server: str, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    haystack = pytest.importorskip("haystack", exc_type=ImportError)
    pytest.importorskip("haystack_integrations.components.rankers.huggingface_api", exc_type=ImportError)
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    def ranker(token: str, **options: Any) -> Any:
        return HuggingFaceTEIRanker(url=server, token=Secret.from_token(token), **options)

    expected = LoadedRanker.load(runs["bert"]).rank([QUERY], TEXTS)[:3]
    documents = [haystack.Document(content=text) for text in TEXTS]
    found = ranker("0123456789abcdef", top_k=3).run(query=QUERY, documents=documents)["documents"]
    assert [(one.content, one.score) for one in found] == [(one.text, one.prob) for one in expected]
    raw = ranker("0123456789abcdef", raw_scores=True, top_k=3).run(query=QUERY, documents=documents)["documents"]
    assert [one.score for one in raw] == [one.logit for one in expected]
    with pytest.raises(Exception, match="401"):
        ranker("another", max_retries=0).run(query=QUERY, documents=documents)
