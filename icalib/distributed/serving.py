"""A finished run as a Ray Serve application: one gateway that speaks HTTP, and replicas of the models.

The gateway is a single replica, so that its metrics and its drift watch see every question. It does no inference;
the models' replicas scale with the load.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import Field

from icalib.core.component import Settings
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, location, pull
from icalib.data.schema import Pool
from icalib.distributed.session import available, start, stop
from icalib.serving.application import Application
from icalib.serving.limits import Limits
from icalib.serving.served_run import QuestionScorer, ServedRun
from icalib.serving.token import read_token

try:
    from ray import serve
    from starlette.requests import Request
    from starlette.responses import Response
except ImportError as error:
    raise SettingError(
        f"serving on Ray needs packages that are missing ({error}). Install them with: pip install 'icalib[serve]', or "
        "use --executor local."
    ) from error

APPLICATION = "icalib"
_JOINT_QUESTIONS, _WAIT_S = 16, 0.002


class ServeArguments(Settings):
    """What `args` of an application in cluster/serve.yaml may contain."""

    run: str
    """Run folder, on storage that all nodes share."""
    token_file: str | None = None
    """File with the token that clients must send, on every node."""
    host: str = "0.0.0.0"
    """Address that the HTTP proxies listen on; a token is required unless it is a loopback address."""
    limits: Limits = Field(default=Limits())


@serve.deployment(name="Ranker", max_ongoing_requests=2 * _JOINT_QUESTIONS, graceful_shutdown_timeout_s=30)
class Ranker:
    """A copy of a run's models.

    Args:
        run: run folder.
    """

    def __init__(self, run: str) -> None:
        import ray
        import torch

        torch.set_num_threads(max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))))
        path = local_path(run)
        pull(path)
        self._scorer = QuestionScorer.load(path)
        self._scorer.warm_up()
        self.score.set_max_batch_size(self._scorer.max_batch)

    @serve.batch(max_batch_size=_JOINT_QUESTIONS, batch_wait_timeout_s=_WAIT_S)
    async def score(self, pools: Sequence[Pool]) -> list[pa.Table]:
        """Return the predictions of each pool; Ray Serve joins the calls of single pools to batches."""
        return await asyncio.to_thread(self._scorer.score, pools)


@serve.deployment(
    name="Gateway",
    num_replicas=1,
    max_ongoing_requests=1000,
    graceful_shutdown_timeout_s=30,
    ray_actor_options={"num_cpus": 0},
)
class Gateway:
    """The HTTP application.

    Args:
        ranker: handle of the models' replicas.
        arguments: of the application.
    """

    def __init__(self, ranker: Any, arguments: dict[str, Any]) -> None:
        checked = ServeArguments.model_validate(arguments)
        path = local_path(checked.run)
        pull(path)
        token_file = None if checked.token_file is None else Path(checked.token_file)
        token = read_token(token_file, checked.host, logging.getLogger(__name__).warning)

        async def score(pool: Pool) -> pa.Table:
            return await ranker.score.remote(pool)

        self._application = Application(ServedRun.open(path), score, checked.limits, token)

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        response = await self._application.respond(request.scope, request.receive)
        if response is None:
            return Response(status_code=499)  # never sent: the client has gone
        return Response(
            response.body, response.status, headers={"content-type": response.content_type, **response.headers}
        )


def build(arguments: dict[str, Any]) -> Any:
    """Return the application; the `import_path` of cluster/serve.yaml.

    Args:
        arguments: fields of `ServeArguments`.

    Raises:
        pydantic.ValidationError: a field is missing or unknown.
    """
    checked = ServeArguments.model_validate(arguments)
    return _bind(Ranker, checked)


def serve_on_ray(
    path: Path,
    host: str,
    port: int,
    limits: Limits,
    token_file: Path | None,
    replicas: int | None,
    started: Callable[[str], None],
) -> None:
    """Serve a run with Ray Serve until SIGINT or SIGTERM; requests that have begun are answered, for at most 30 s.

    Args:
        path: run folder.
        host: address that the HTTP proxy listens on.
        port: port that it listens on.
        limits: limits of requests.
        token_file: file with the token that clients must send.
        replicas: maximum number of copies of the models; None takes one per GPU, or one without GPUs.
        started: receives the URL when requests are accepted.

    Raises:
        SettingError: the port can't be used, or the replicas don't fit.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    token = None if token_file is None else str(token_file.resolve())
    with _stop_signal() as stopped:
        start()
        try:
            resources = available(replicas)
            ranker = Ranker.options(
                autoscaling_config={
                    "min_replicas": 1,
                    "max_replicas": resources.num_workers,
                    "target_ongoing_requests": 4,
                },
                ray_actor_options={
                    "num_cpus": resources.cpus_per_worker,
                    "num_gpus": 1 if resources.use_gpu else 0,
                },
            )
            arguments = ServeArguments(run=location(path), token_file=token, host=host, limits=limits)
            serve.start(
                http_options={"host": host, "port": port, "location": "HeadOnly"},
                logging_config={"log_level": "WARNING"},
            )
            serve.run(_bind(ranker, arguments), name=APPLICATION, route_prefix="/")
            started(f"http://{host}:{port}")
            stopped.wait()
            serve.delete(APPLICATION)  # waits for what has begun
            serve.shutdown()
        finally:
            stop()


def _bind(ranker: Any, arguments: ServeArguments) -> Any:
    return Gateway.bind(ranker.bind(arguments.run), arguments.model_dump())


@contextmanager
def _stop_signal() -> Generator[threading.Event, None, None]:
    """Yield an event that SIGINT and SIGTERM set."""
    stopped = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    earlier = {number: signal.signal(number, lambda number, frame: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
