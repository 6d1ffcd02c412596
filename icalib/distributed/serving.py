"""A finished run as a Ray Serve application: one gateway, whose metrics see every question, and replicas of models."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
from ray import serve
from ray.serve.schema import DeploymentStatus, ReplicaState
from starlette.exceptions import HTTPException

from icalib.core.component import Settings
from icalib.core.errors import ClusterError, RunFolderError, SettingError
from icalib.core.hosts import url_of
from icalib.core.process import on_stop
from icalib.core.storage import local_path, location, pull
from icalib.data.schema import Pool
from icalib.distributed.session import alive_nodes, available, start, stop
from icalib.pipeline.finished import FinishedRun
from icalib.serving.application import create_app
from icalib.serving.limits import DEFAULT_LIMITS, DRAIN_S, Limits, read_token
from icalib.serving.served_run import Batcher, QuestionScorer

APPLICATION = "icalib"
_STARTING_S = 10.0
_log = logging.getLogger(__name__)
_PATIENCE_S = 10.0  # of a request, before it asks whether there is a copy of the models at all
_BROKEN = (DeploymentStatus.UNHEALTHY, DeploymentStatus.DEPLOY_FAILED)


class ServeArguments(Settings):
    """What `args` of an application in cluster/serve.yaml may contain."""

    run: str  # run folder, on storage that all nodes share
    token_file: str | None = None  # file with the token that clients must send, on every node
    host: str = "0.0.0.0"
    """Address that the HTTP proxies listen on; a token is required unless it is a loopback address."""
    limits: Limits = DEFAULT_LIMITS


class Ranker:
    """A copy of a run's models.

    A RunFolderError says that the folder no longer has the run with this `digest`: Ray Serve starts replicas at any
    time, and all have to answer alike.
    """

    def __init__(self, run: str, digest: str) -> None:
        import torch

        # Ray sets the variable to the replica's cores; in a reused process torch has read an earlier value
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        path = local_path(run)
        pull(path)
        scorer = QuestionScorer.load(path)
        _check_unchanged(scorer.run, digest)
        scorer.warm_up()
        self._batcher = Batcher(scorer.score, scorer.max_batch)

    async def score(self, pool: Pool) -> pa.Table:
        """Return the predictions of a pool; concurrent calls are joined to batches."""
        return await self._batcher(pool)


class Gateway:
    """The HTTP application, with a handle of the models' replicas."""

    def __init__(self, ranker: Any, arguments: dict[str, Any], digest: str) -> None:
        checked = ServeArguments.model_validate(arguments)
        path = local_path(checked.run)
        pull(path)
        token_file = None if checked.token_file is None else Path(checked.token_file)
        token = read_token(token_file, checked.host, _log.warning)

        async def score(pool: Pool) -> pa.Table:
            answer = asyncio.ensure_future(ranker.score.remote(pool))
            try:
                while not (await asyncio.wait({answer}, timeout=_PATIENCE_S))[0]:
                    await _check_answers()
                return answer.result()
            finally:
                answer.cancel()

        served = FinishedRun.open(path)
        self._app = create_app(served, score, checked.limits, token, _check_answers)
        _check_unchanged(served, digest)

    def __serve_build_asgi_app__(self) -> Any:
        """Return the HTTP application to Ray Serve."""
        return self._app


def build(arguments: dict[str, Any]) -> Any:
    """Return the application from the fields of `ServeArguments`; the `import_path` of cluster/serve.yaml."""
    checked = ServeArguments.model_validate(arguments)
    return _bound(checked, _digest_on_a_node(checked.run), {})


def _digest_on_a_node(run: str) -> str:
    """Return a run's digest, read where its models could run: this may be the head, which needs no storage."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = next((node for node in alive_nodes() if node.cpus or node.gpus), None)
    there: dict[str, Any] = {"num_cpus": 1}  # an autoscaler adds a node for it
    if node:  # whose cores may all be taken, by the replicas of before
        there = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=True)}
    return str(ray.get(ray.remote(**there)(_digest).remote(run)))


def _digest(run: str) -> str:
    path = local_path(run)
    pull(path)
    return FinishedRun.open(path).digest


async def _check_answers() -> None:
    """Refuse what no copy of the models can answer."""
    if problem := await asyncio.to_thread(_why_none_answers):
        _log.error("no copy of the models is running: %s", problem)
        raise HTTPException(503, "no copy of the models is running; the server's log says why.")


def _why_none_answers() -> str:
    """Return why no copy of the models runs; nothing while one does, or may soon."""
    application = serve.status().applications[serve.get_replica_context().app_name]
    ranker = application.deployments[Ranker.__name__]
    is_broken = ranker.status in _BROKEN and not ranker.replica_states.get(ReplicaState.RUNNING)
    return ranker.message if is_broken else ""


def _check_unchanged(run: FinishedRun, digest: str) -> None:
    if run.digest != digest:
        raise RunFolderError(
            f"{location(run.folder.path)} has changed since the server was started: the models that it serves are not "
            "there any more. Restart the server to serve the new ones, or restore the run."
        )


def serve_on_ray(
    path: Path,
    host: str,
    port: int,
    limits: Limits,
    token_file: Path | None,
    replicas: int | None,
    starting: AbstractContextManager[None],
    started: Callable[[str], None],
) -> None:
    """Serve a run with Ray Serve until SIGINT or SIGTERM; requests that have begun are answered, for at most 30 s.

    There are at most `replicas` copies of the models, by default one per GPU or one. `starting` is the context of the
    start, which waits for room without an end; `started` receives the URL. A SettingError says that the cluster has a
    Ray Serve already, or the address is taken, a ClusterError that no model could be loaded.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    token = None if token_file is None else str(token_file.resolve())
    arguments = ServeArguments(run=location(path), token_file=token, host=host, limits=limits)
    if not port:
        raise SettingError(
            "--port 0 is for --executor local: Ray Serve doesn't say which port it took. Choose another."
        )
    with ExitStack() as stack:
        with starting:
            start()
            stack.callback(stop)
            _clear_the_cluster()
            resources = available(replicas)
            scaling = {"min_replicas": 1, "max_replicas": resources.num_workers, "target_ongoing_requests": 4}
            each = {"num_cpus": resources.cpus_per_worker, "num_gpus": int(resources.use_gpu)}
            stack.callback(_shut_down)  # a cluster would keep what was started
            _listen({"host": host, "port": port, "location": "HeadOnly"})
            digest = FinishedRun.open(path).digest
            _deploy(_bound(arguments, digest, {"autoscaling_config": scaling, "ray_actor_options": each}))
        stopped = threading.Event()
        with on_stop(stopped.set):  # not before: the start may take for ever
            started(url_of(host, port))
            stopped.wait()
            serve.delete(APPLICATION)  # waits for what has begun


def _shut_down() -> None:
    # Ray prints that it can't retry to stop the actor that it stopped.
    with on_stop(lambda: None), redirect_stdout(io.StringIO()):
        serve.shutdown()


def _listen(options: Mapping[str, Any]) -> None:
    from ray.exceptions import RayTaskError

    try:
        serve.start(http_options=dict(options), logging_config={"log_level": "WARNING"})
    except RayTaskError as error:
        raise SettingError(f"{error.cause} Choose another --host or --port.") from error


def _deploy(application: Any) -> None:
    try:
        serve.run(application, name=APPLICATION, route_prefix="/")
    except RuntimeError as error:  # it doesn't say why
        deployments = serve.status().applications[APPLICATION].deployments
        causes = [f"{name}: {found.message.splitlines()[-1]}" for name, found in deployments.items() if found.message]
        raise ClusterError(f"the replicas of the models didn't start. {' '.join(causes) or error}") from error


def _clear_the_cluster() -> None:
    """Refuse a cluster with a Ray Serve: it would keep its port, this run replace its, and either end both.

    One without an application is what a server left that was killed while it stopped, and is ended: Ray kills a
    stopped job's process after 3 s.
    """
    found = serve.status()
    if found.proxies and not found.applications:
        time.sleep(_STARTING_S)  # another server may be about to have one
        found = serve.status()
    if found.applications:
        raise SettingError(
            f"Ray Serve runs on this cluster already (applications: {', '.join(found.applications)}), and a cluster "
            "has one. Stop the other server, or what it left if it was killed (`serve shutdown` on the head); or use "
            "--executor local, which serves from this process."
        )
    if found.proxies:
        _shut_down()


def _bound(arguments: ServeArguments, digest: str, options: Mapping[str, Any]) -> Any:
    ranker: Any = serve.deployment(Ranker, max_ongoing_requests=32, graceful_shutdown_timeout_s=DRAIN_S)
    gateway: Any = serve.deployment(
        serve.ingress()(Gateway),
        num_replicas=1,
        max_ongoing_requests=1000,
        graceful_shutdown_timeout_s=DRAIN_S,
        ray_actor_options={"num_cpus": 0},
    )
    return gateway.bind(ranker.options(**options).bind(arguments.run, digest), arguments.model_dump(), digest)
