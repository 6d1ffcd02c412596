"""`icalib serve`: a finished run behind HTTP, in this process or as a Ray Serve application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from icalib.api.options import ExecutorName
from icalib.core.errors import SettingError
from icalib.core.storage import pull
from icalib.serving.limits import DEFAULT_LIMITS, Limits


def serve(
    run: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    limits: Limits = DEFAULT_LIMITS,
    executor: ExecutorName = "ray",
    replicas: int | None = None,
    note: Callable[[str], None] = print,
) -> None:
    """Serve a finished run until SIGINT or SIGTERM.

    Args:
        run: run folder.
        host: address to listen on; beyond loopback a token is required.
        port: port to listen on.
        token_file: file with the token that clients must send.
        limits: limits of requests.
        executor: ray, or local for one process without Ray.
        replicas: maximum number of copies of the models on Ray; None takes one per GPU, or one without GPUs.
        note: receives lines for people.

    Raises:
        RunFolderError: the folder is not a finished run.
        SettingError: the method has no model to load, an option is invalid, or a package is missing.
    """
    from icalib.serving.auth_token import is_loopback, read_token
    from icalib.serving.served_run import ServedRun

    token = read_token(token_file, host, note)
    pull(run)
    name = ServedRun.open(run).run.folder.name

    def started(url: str) -> None:
        guarded = "token required" if token else "no token, this machine only"
        note(f"{name} at {url} ({guarded}); Ctrl-C stops it")
        if not is_loopback(host):
            note("HTTP is not encrypted: put an HTTPS proxy in front of it where others share the network")

    try:
        if executor == "local":
            from icalib.serving.local import serve_here

            serve_here(run, host, port, limits, token, started)
        else:
            from icalib.distributed.serving import serve_on_ray

            serve_on_ray(run.resolve(), host, port, limits, token_file, replicas, started)
    except ModuleNotFoundError as error:
        raise SettingError(
            f"serving needs a package that is missing ({error.name}). Install it with: pip install 'icalib[serve]'"
        ) from error
    note("stopped")
