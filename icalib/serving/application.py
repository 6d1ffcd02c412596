"""The HTTP application: routes, token, limits, errors and metrics, as plain ASGI."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from icalib.data.schema import Pool
from icalib.pipeline.predict import unlabelled_scores
from icalib.serving.drift import DriftWatch
from icalib.serving.http import DisconnectedError, Receive, RequestError, Response, Scope, Send, header, read_json
from icalib.serving.limits import Limits
from icalib.serving.monitor import CONTENT_TYPE, Monitor
from icalib.serving.protocols import PROTOCOLS, AbstractProtocol, Predict, Scored
from icalib.serving.served_run import ServedRun

Score = Callable[[Pool], Awaitable[pa.Table]]
"""Returns the predictions (PREDICTION_SCHEMA) of a pool, in the order of its candidates."""

_ALLOWED = {
    **dict.fromkeys(PROTOCOLS, ("POST",)),
    **dict.fromkeys(("/health", "/info", "/metrics"), ("GET", "HEAD")),
}
_WITHOUT_TOKEN = "/health"
_OTHER = Predict()
_log = logging.getLogger(__name__)


class Application:
    """An ASGI application that ranks with one run.

    Args:
        run: the run.
        score: scores a pool, e.g. a `Batcher` of a `QuestionScorer`.
        limits: what is accepted.
        token: what clients must send as `Authorization: Bearer TOKEN`; None requires nothing.
    """

    def __init__(self, run: ServedRun, score: Score, limits: Limits, token: str | None = None) -> None:
        self._run, self._score, self._limits, self._token = run, score, limits, token
        self.monitor = Monitor(DriftWatch(run.top_scores(run.validation)))
        self._num_pending = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or take note that the server starts or stops."""
        if scope["type"] == "lifespan":
            await _acknowledge(receive, send)
        elif scope["type"] == "http":
            response = await self.respond(scope, receive)
            if response is not None:
                await response.send(send)

    async def respond(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to a request; None if the client has gone."""
        started = time.perf_counter()
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        known = path if path in _ALLOWED else "other"
        protocol = PROTOCOLS.get(path, _OTHER)
        try:
            response = await self._respond(path, protocol, scope, receive)
        except DisconnectedError:
            return None
        except RequestError as error:
            response = Response.of(protocol.error(error.status, error.message), error.status, error.headers)
        except Exception:
            _log.exception("%s failed", path)
            message = "the server failed to answer; its log says why."
            response = Response.of(protocol.error(500, message), 500)
        self.monitor.finished(known, response.status, time.perf_counter() - started)
        return response

    async def _respond(self, path: str, protocol: AbstractProtocol, scope: Scope, receive: Receive) -> Response:
        if path != _WITHOUT_TOKEN:
            self._check_token(scope)
        allowed = _ALLOWED.get(path)
        if allowed is None:
            raise RequestError(404, f"there is nothing at {path:.100}. Paths: {', '.join(sorted(_ALLOWED))}.")
        if scope["method"] not in allowed:
            raise RequestError(405, f"{path} takes {' or '.join(allowed)}.", {"allow": ", ".join(allowed)})
        if path in PROTOCOLS:
            return Response.of(await self._rank(protocol, receive))
        if path == "/metrics":
            return Response(200, self.monitor.text(), CONTENT_TYPE)
        return Response.of({"status": "ok"} if path == "/health" else self._info())

    def _check_token(self, scope: Scope) -> None:
        scheme, _, given = header(scope, "authorization").partition(" ")
        if self._token is None:
            return
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            found = "no token" if not given else "another token"
            raise RequestError(
                401, f"found {found}. Send the server's as `Authorization: Bearer …`.", {"www-authenticate": "Bearer"}
            )

    async def _rank(self, protocol: AbstractProtocol, receive: Receive) -> Any:
        limits = self._limits
        value = await read_json(receive, limits.max_body_bytes, limits.body_timeout_s)
        asked = protocol.read(value, limits)
        if self._num_pending >= limits.max_pending:
            raise RequestError(429, f"{self._num_pending} requests are waiting. Try again later.", {"retry-after": "1"})
        self._num_pending += 1
        self.monitor.pending.set(self._num_pending)
        try:
            pool = self._run.pool(asked.context, asked.candidates)
            table = await self._score(pool)
        finally:
            self._num_pending -= 1
            self.monitor.pending.set(self._num_pending)
        scored = Scored(self._run, unlabelled_scores(table, [pool]), table)
        is_usual = len(pool.candidates) in self._run.usual_sizes
        self.monitor.scored(len(pool.candidates), float(self._run.top_scores(scored.scores)[0]), is_usual=is_usual)
        return protocol.answer(asked, scored)

    def _info(self) -> dict[str, Any]:
        return {
            **self._run.info(),
            "max_client_batch_size": self._limits.max_candidates,  # clients of text-embeddings-inference read this name
            "limits": asdict(self._limits),
            "drift": self.monitor.drift.record(),
        }


async def _acknowledge(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
