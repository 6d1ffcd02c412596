"""The verb that serves a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Executor, Run
from icalib.cli.output import say
from icalib.core.errors import SettingError
from icalib.core.storage import pull
from icalib.serving.limits import DEFAULT_LIMITS, Limits


@verb
def serve(
    run: Run,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in and needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one (local).")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients send as `Authorization: Bearer TOKEN`.")
    ] = None,
    max_body: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request in bytes; larger ones get 413.")
    ] = DEFAULT_LIMITS.max_body_bytes,
    max_candidates: Annotated[
        int, typer.Option(min=1, help="Maximum candidates in a request; more get 422.")
    ] = DEFAULT_LIMITS.max_candidates,
    max_text: Annotated[
        int, typer.Option(min=1, help="Maximum characters of a text; longer ones get 422.")
    ] = DEFAULT_LIMITS.max_text_chars,
    max_pending: Annotated[
        int, typer.Option(min=1, help="Maximum requests that wait at a time; others get 429.")
    ] = DEFAULT_LIMITS.max_pending,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Maximum copies of the models on Ray; default: one per GPU, or one.")
    ] = None,
    executor: Executor = "ray",
) -> None:
    """Serve a finished run over HTTP: reranking as text-embeddings-inference and Cohere do, and predictions.

    POST /rerank (query, texts), POST /v2/rerank and /v1/rerank (query, documents) and POST /predict (context,
    candidates, as a line of `icalib predict`) answer with calibrated probabilities; GET /health, /info and /metrics
    show the state, with a watch on whether questions still look like the run's validation pools. On Ray the models
    are replicas that scale with the load (on a cluster: cluster/serve.yaml); --executor local serves from one process.
    SIGTERM and Ctrl-C answer what has begun, then stop.
    """
    from icalib.serving.auth_token import is_loopback, read_token
    from icalib.serving.served_run import ServedRun

    limits = Limits(
        max_body_bytes=max_body, max_candidates=max_candidates, max_text_chars=max_text, max_pending=max_pending
    )
    token = read_token(token_file, host, say)
    pull(run)
    name = ServedRun.open(run).run.folder.name

    def started(url: str) -> None:
        guarded = "token required" if token else "no token, this machine only"
        say(f"{name} at {url} ({guarded}); Ctrl-C stops it")
        if not is_loopback(host):
            say("HTTP is not encrypted: put an HTTPS proxy in front of it where others share the network")

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
    say("stopped")
