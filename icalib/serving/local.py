"""Serving in this process with uvicorn, without Ray."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from icalib.core.errors import SettingError
from icalib.core.hosts import url_of
from icalib.core.process import on_stop
from icalib.serving.application import create_app, error_response
from icalib.serving.limits import DRAIN_S, Limits
from icalib.serving.served_run import Batcher, QuestionScorer


def serve_here(
    path: Path, host: str, port: int, limits: Limits, token: str | None, started: Callable[[str], None]
) -> None:
    """Serve a run until SIGINT or SIGTERM; requests that have begun are answered, for at most 30 s.

    Port 0 takes a free one; without a `token` none is required; `started` receives the URL when the models are loaded.
    """
    with _listener(host, port) as listener:
        scorer = QuestionScorer.load(path)
        scorer.warm_up()
        app = create_app(scorer.run, Batcher(scorer.score, scorer.max_batch), limits, token)
        server = uvicorn.Server(
            uvicorn.Config(
                Ending(app),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )

        def stop() -> None:
            server.should_exit = True

        # uvicorn raises the signal again once it has stopped, which would end this process as if it had failed
        with on_stop(stop):
            started(url_of(host, listener.getsockname()[1]))
            server.run([listener])


class Ending:
    """Middleware that answers a request which is cancelled, as uvicorn does to those that a stopping server can't wait
    for; it would answer in plain text, and log a traceback.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        has_begun = False

        async def observed(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except asyncio.CancelledError:
            if scope["type"] != "http" or has_begun:
                raise
            await error_response(scope["path"], 503, "the server has been stopped. Ask again.")(scope, receive, send)


def _listener(host: str, port: int) -> socket.socket:
    """Return a listening socket, opened before models are loaded, so that a port that is taken is reported early."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"can't listen on {host}, port {port} ({error}). Choose another --host or --port."
        ) from error
