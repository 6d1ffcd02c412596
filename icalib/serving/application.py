"""The HTTP application: routes, token, limits, errors and metrics, for any ASGI server and for Ray Serve."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from icalib.core.errors import DataError, SettingError
from icalib.core.hosts import is_loopback
from icalib.core.text import describe
from icalib.core.version import __version__
from icalib.data.schema import Pool
from icalib.pipeline.finished import FinishedRun, unlabelled_scores
from icalib.serving.json_body import JsonRoute
from icalib.serving.limits import Limits
from icalib.serving.protocols import AbstractRequest, DocumentsRequest, PredictRequest, Scored, TextsRequest, error_body
from icalib.serving.served_run import question_pool, run_info

Score = Callable[[Pool], Awaitable[pa.Table]]
"""Returns the predictions (PREDICTION_SCHEMA) of a pool, in the order of its candidates."""
Check = Callable[[], Awaitable[None]]
"""Raises an HTTPException where no question can be answered now."""

_PATHS = ("/health", "/info", "/metrics", "/openapi.json", "/predict", "/rerank", "/v1/rerank", "/v2/rerank")
T = TypeVar("T")
_log = logging.getLogger(__name__)


async def _always_ready() -> None:
    """Pass: the models are in this process."""


def create_app(
    run: FinishedRun, score: Score, limits: Limits, token: str | None = None, check: Check = _always_ready
) -> FastAPI:
    """Return an application that ranks with one run by `score`, e.g. a `Batcher`; `check` decides about its health.

    Clients must send `token` as `Authorization: Bearer TOKEN`; None requires nothing.
    """
    run.check_has_models()
    run.keep()
    app = FastAPI(title=f"icalib: {run.folder.name}", version=__version__, docs_url=None, redoc_url=None)
    app.router.route_class = JsonRoute
    app.state.limits, app.state.free = limits, asyncio.Semaphore(limits.max_pending)
    monitor = Monitor()
    app.add_middleware(_Guard, token=token, monitor=monitor)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)

    async def answer(request: AbstractRequest, http: Request) -> Any:
        context, candidates = request.question()
        try:
            request.check(run)
        except SettingError as error:
            raise HTTPException(422, str(error)) from error
        except DataError as error:  # its path is the run's folder on this machine
            raise HTTPException(422, f"{error.found}. {error.cure}") from error
        pool = question_pool(run, context, candidates)
        with monitor.pending.track_inprogress():
            table = await _while_connected(http, score(pool))
        scored = Scored(run, unlabelled_scores(table, [pool]), table)
        monitor.best.observe(float(scored.scores.prob[scored.ranking()[0]]))
        return request.response(scored)

    @app.post("/rerank")
    async def rerank(request: TextsRequest, http: Request) -> JSONResponse:
        return JSONResponse(await answer(request, http))

    @app.post("/v1/rerank")
    async def rerank_v1(request: DocumentsRequest, http: Request) -> JSONResponse:
        return JSONResponse({**await answer(request, http), "meta": {"api_version": {"version": "1"}}})

    @app.post("/v2/rerank")
    async def rerank_v2(request: DocumentsRequest, http: Request) -> JSONResponse:
        return JSONResponse({**await answer(request, http), "meta": {"api_version": {"version": "2"}}})

    @app.post("/predict")
    async def predict(request: PredictRequest, http: Request) -> JSONResponse:
        return JSONResponse(await answer(request, http))

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> dict[str, str]:
        await check()
        return {"status": "ok"}

    @app.head("/info", include_in_schema=False)
    @app.get("/info")
    async def info() -> dict[str, Any]:
        return {
            **run_info(run),
            "max_client_batch_size": limits.max_candidates,  # clients of text-embeddings-inference read this name
            "limits": asdict(limits),
        }

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(monitor.registry), media_type=CONTENT_TYPE_LATEST)

    return app


async def _while_connected(http: Request, work: Awaitable[T]) -> T:
    """Return what `work` does; it is cancelled when the client goes, so that nothing is scored for nobody."""
    scoring = asyncio.ensure_future(work)

    async def watch() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        scoring.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await scoring
    except asyncio.CancelledError:
        if watching.done():
            raise HTTPException(499, "the client has gone.") from None
        raise
    finally:
        watching.cancel()


class _Guard:
    """Middleware that requires the token, measures requests, and hides the details of unexpected errors.

    As a function (`app.middleware("http")`) it would take 0.2 ms more of each request.
    """

    def __init__(self, app: ASGIApp, token: str | None, monitor: Monitor) -> None:
        self._app, self._token, self._monitor = app, token, monitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _path(scope) != "/":  # some clients end an address with a slash, and few follow a redirection of POST
            scope["path"] = scope["path"].rstrip("/")
        started, status, path = time.perf_counter(), 500, _path(scope)

        async def observed(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await (self._refusal(Request(scope)) or self._app)(scope, receive, observed)
        except Exception:
            _log.exception("%s failed", path)
            await error_response(path, 500, "the server failed to answer; its log says why.")(scope, receive, observed)
        finally:
            known = path if path in _PATHS else "other"
            self._monitor.requests.labels(known, str(status)).inc()
            self._monitor.seconds.labels(known).observe(time.perf_counter() - started)

    def _refusal(self, request: Request) -> Response | None:
        path = _path(request.scope)
        if self._token is None:
            # A page of another site can name this machine by a name of its own, and read what is answered.
            host = re.sub(r"\.?(:\d*)?$", "", request.headers.get("host", "localhost").lower())
            message = (
                f"the host is {host:.50}. Expected localhost: ask this address, or require a token (--token-file)."
            )
            return None if is_loopback(host) else error_response(path, 403, message)
        if path == "/health":
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode()):
            return None
        message = f"found {'another' if given else 'no'} token. Send the server's as `Authorization: Bearer …`."
        return error_response(path, 401, message, {"www-authenticate": "Bearer"})


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, headers = _path(request.scope), error.headers or {}
    message = error.detail
    if error.status_code == 404:
        message = f"there is nothing at {path:.100}. Paths: {', '.join(_PATHS)}."
    elif error.status_code == 405:
        message = f"{path} takes {headers['Allow']}."
    return error_response(path, error.status_code, message, headers)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problem = describe(error.errors()[0])
    field = ".".join(problem.path[1:])  # the first one is "body"
    return error_response(_path(request.scope), 422, f"`{field}`: {problem.found}. Expected: {problem.expected}.")


def error_response(path: str, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error in the shape of the API at a path."""
    return JSONResponse(error_body(path, status, message), status, headers)


def _path(scope: Scope) -> str:
    return scope["path"].removeprefix(scope.get("root_path", "")) or "/"


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TENTHS = tuple(step / 10 for step in range(1, 11))


class Monitor:
    """Counters of one server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "icalib_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        what = "Seconds from a request's headers to its response."
        self.seconds = Histogram("icalib_request_seconds", what, ["path"], buckets=_SECONDS, registry=registry)
        self.pending = Gauge("icalib_pending_requests", "Requests that wait for scores.", registry=registry)
        what = "Calibrated probability of each question's best candidate."
        self.best = Histogram("icalib_best_probability", what, buckets=_TENTHS, registry=registry)
