"""Serving in this process with uvicorn, without Ray."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from icalib.core.errors import SettingError
from icalib.data.schema import Pool
from icalib.serving.application import Application
from icalib.serving.batching import Batcher
from icalib.serving.limits import DRAIN_S, Limits
from icalib.serving.served_run import QuestionScorer, ServedRun

_EXTRA = "serving needs the package uvicorn. Install it with: pip install 'icalib[serve]'"


def serve(path: Path, host: str, port: int, limits: Limits, token: str | None, started: Callable[[str], None]) -> None:
    """Serve a run until SIGINT or SIGTERM; requests that have begun are answered, for at most 30 s.

    Args:
        path: run folder.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        limits: limits of requests.
        token: what clients must send; None requires nothing.
        started: receives the URL when requests are accepted.

    Raises:
        RunFolderError, SettingError: the run can't be loaded, the port is not free, or uvicorn is missing.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise SettingError(_EXTRA) from error
    with closing(_listen(host, port)) as listener:
        scorer = QuestionScorer.load(path)
        batcher = Batcher[Pool, pa.Table](scorer.score, max_size=scorer.max_batch)
        application = Application(ServedRun(scorer.run), batcher, limits, token)
        scorer.warm_up()
        config = uvicorn.Config(
            application,  # pyright: ignore[reportArgumentType]  # uvicorn's own types of scopes
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
        server = _server(config, lambda: started(f"http://{_shown(host)}:{listener.getsockname()[1]}"))
        with _ending_normally(server):
            server.run([listener])


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, opened before models are loaded, so that a port that is taken is reported early."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"can't listen on {host}, port {port} ({error}). Choose another --host or --port."
        ) from error
    return listener


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _server(config: Any, started: Callable[[], None]) -> Any:
    """Return a uvicorn server that reports its start, and leaves signals to `_ending_normally`."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    return Server(config)


@contextmanager
def _ending_normally(server: Any) -> Generator[None, None, None]:
    """Let SIGINT and SIGTERM stop a server, from before its event loop starts, which can lose exceptions of handlers.

    uvicorn itself raises the signals again when it has stopped, and the process would end as if it had failed.
    """
    earlier = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
