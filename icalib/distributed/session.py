"""Starting Ray or joining a cluster, and planning with the resources that it has."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from icalib.core.errors import ClusterError, ComponentError, IcalibError, SettingError
from icalib.core.process import WAITING, Terminated, collect_rarely, usable_cores
from icalib.stages.resources import Resources

T = TypeVar("T")
R = TypeVar("R")

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
# Best set before Ray is imported: a local Ray listens on loopback only, sends no telemetry and polls its workers often.
# RAY_AUTH_MODE isn't here: `ray.init` requires a token by itself, also where the user has imported Ray before.
LOCAL_ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # binds 127.0.0.1; not for clusters of several machines
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # the default of 2 s makes every short run 3 to 5 s longer
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # Beside one busy process, Ray's own 15 leaves a worker a thirtieth of a core, 5 a quarter; a laptop stays usable.
    "RAY_worker_niceness": "5",
    "RAY_prestart_worker_first_driver": "0",  # those have no runtime environment, and no task of ours would run in them
    # Idle scoring processes are kept during a training: importing torch again would take longer than a shard.
    "RAY_num_workers_soft_limit": "8",
    "RAY_idle_worker_killing_time_threshold_ms": "1800000",
}
EVERYWHERE = {
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TOKENIZERS_PARALLELISM": "false",
    **WAITING,
}

_CONNECT_TIMEOUT_S = 10.0
UNUSABLE_GPU_CURE = (
    "Install a build of torch for the node's driver (nvidia-smi shows its CUDA version), or start Ray there with "
    "--num-gpus=0."
)

DRIVER_CPUS = "ICALIB_DRIVER_CPUS"
"""Environment variable: the CPU cores that a submitted job's own process reserves; trainings can't use them."""


def set_up_worker() -> None:
    """Make a worker start quickly and be cancellable, and silence routine notices; runs first in every Ray worker."""
    collect_rarely()
    if threading.current_thread() is threading.main_thread():
        # `ray.cancel` interrupts, which a script's background jobs and what they start ignore.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("ray.train").setLevel(logging.ERROR)  # the cleaner of placement groups misses the dashboard
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")


def has_joined() -> bool:
    """Return whether this process has joined a Ray already, e.g. by the user's own `ray.init`."""
    ray = sys.modules.get("ray")  # Ray reads the environment when it is imported, so `start` imports it first
    return ray is not None and ray.is_initialized()


def start(
    address: str | None = None, num_cpus: int | None = None, note: Callable[[str], None] = lambda text: None
) -> None:
    """Join the cluster at `address` (HOST:PORT), else the one in RAY_ADDRESS, else start a local Ray.

    A local Ray has `num_cpus` cores, None takes all that this process may use; `note` receives messages about what was
    repaired.
    """
    here = "leave --address out" if address else "unset RAY_ADDRESS"
    address = address or os.environ.get("RAY_ADDRESS")
    # A job's environment may set the variables below as well; without this Ray would report a conflict.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    for name, value in {**EVERYWHERE, **({} if address else LOCAL_ENVIRONMENT)}.items():
        os.environ.setdefault(name, value)
    import ray
    from ray._private import worker
    from ray.exceptions import RayError

    if ray.is_initialized():
        return
    if address and address.startswith("ray://"):
        raise SettingError(
            f"{address} is an address of Ray Client, which icalib doesn't use. Run the command on a machine of the "
            "cluster with --address HOST:6379, or `icalib submit` a job file from here."
        )
    protect_token(note, create=not address)
    shared: dict[str, Any] = {
        "logging_level": "ERROR",
        "log_to_driver": False,
        "runtime_env": {
            "worker_process_setup_hook": set_up_worker,
            "env_vars": {name: os.environ[name] for name in EVERYWHERE},
        },
    }
    with warnings.catch_warnings(), _own_handlers():
        warnings.simplefilter("ignore", FutureWarning)  # Ray announces a new default for its GPU variables
        # `log_to_driver` leaves Ray's own notices, e.g. of a worker that died, which it prints on standard output
        worker._worker_logs_enabled = False  # pyright: ignore[reportPrivateUsage]
        if not address:
            try:
                _start_here(num_cpus or usable_cores(), shared)
            except BaseException:
                stop()  # which removes its folder
                raise
            return
        try:
            head = urlsplit(address if "//" in address else f"//{address}")
            if head.hostname and head.port:  # Ray itself retries for minutes and prints every attempt
                socket.create_connection((head.hostname, head.port), timeout=_CONNECT_TIMEOUT_S).close()
            ray.init(address=address, **shared)
        except (OSError, ValueError, RuntimeError, RayError) as error:
            raise SettingError(
                f"can't join the Ray cluster at {address} ({' '.join(str(error).split())}). Check the address, the "
                "token (RAY_AUTH_TOKEN_PATH, and RAY_AUTH_MODE=token) and that Ray and Python have the versions of the "
                f"cluster, or {here} to work on this machine."
            ) from error


def _start_here(num_cpus: int | None, shared: Mapping[str, Any]) -> None:
    import ray

    try:
        ray.init(
            address="local",  # without it Ray joins the cluster that was started last on this machine
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=256 * 2**20,
            _temp_dir=_private_folder(),
            **shared,
        )
    except OSError:  # a full disk is reported as such
        raise
    except Exception as error:  # Ray gives its processes 30 s, and raises a plain Exception after them
        raise ClusterError(
            f"Ray didn't start on this machine ({error}). If it was busy or short of memory, run the same command "
            "again later; --executor local works without Ray."
        ) from error


_folders: list[str] = []
_MAX_FOLDER = 25  # letters of the path above: those of sockets below have 82 more, and 107 are their limit


def _private_folder() -> str | None:
    """Make a folder for Ray's logs, sockets and code in one of this user only: Ray lets everyone write to its own.

    None leaves it to Ray, where the environment names a folder.
    """
    if "RAY_TMPDIR" in os.environ:
        return None
    above = os.environ.get("TMPDIR", "/tmp")
    _folders.append(tempfile.mkdtemp(prefix="icalib-", dir=above if len(above) <= _MAX_FOLDER else "/tmp"))
    return f"{_folders[-1]}/r"


@contextmanager
def _own_handlers() -> Generator[None, None, None]:
    """Keep this process's handlers of signals where Ray would replace them: its C++ core prints a stack trace.

    Terminated says that SIGTERM was received while Ray's handler, which exits, was the current one.
    """
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except SystemExit as exited:
        raise Terminated from exited
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in earlier.items():
                if callable(handler):
                    signal.signal(number, handler)


def stop() -> None:
    """Disconnect from the cluster; a local Ray is shut down, and its folder removed."""
    import ray

    ray.shutdown()
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)


class Node(NamedTuple):
    """A live node, with its resources according to Ray, idle or not."""

    id: str
    host: str
    address: str  # the IP address at which other nodes reach it
    cpus: float
    gpus: int

    @property
    def name(self) -> str:
        """Its host name and the start of its id, since a machine may run several nodes."""
        return f"{self.host} ({self.id[:6]})"


@contextmanager
def component_of_this_node() -> Generator[None, None, None]:
    """Say which node a component is missing on: the driver has it, and other nodes may."""
    import ray

    try:
        yield
    except ComponentError as error:
        name = platform.node()
        if ray.is_initialized():
            name = f"{name} ({ray.get_runtime_context().get_node_id()[:6]})"
        raise ComponentError(f"on the node {name}: {error} All nodes need it; `icalib submit` uploads code.") from error


def alive_nodes() -> list[Node]:
    """Return the live nodes, sorted by host."""
    import ray

    nodes = [
        Node(
            id=node["NodeID"],
            host=node["NodeManagerHostname"],
            address=node["NodeManagerAddress"],
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda node: node.name)


def is_one_cpu_node(resources: Resources) -> bool:
    """Return whether Ray runs on one node, and the work on its cores."""
    return not resources.use_gpu and len(alive_nodes()) == 1


def max_calls(use_gpu: bool) -> int:
    """Return how many tasks a process serves before Ray ends it; 0 is no limit.

    CUDA sees the GPUs that the first task of a process was given, so where a node has several, each task needs a new
    process. Elsewhere, starting it and importing torch would take longer than most tasks.
    """
    return 1 if use_gpu and any(node.gpus > 1 for node in alive_nodes()) else 0


def check_alive(node_id: str) -> None:
    """Check that a node of the cluster is alive; a ClusterError if its raylet has died."""
    if node_id not in {node.id for node in alive_nodes()}:
        raise ClusterError(
            "Ray's process `raylet` on this machine has died, so nothing more can run here. If memory ran out, use "
            "fewer --concurrent or --workers. Run the same command again to resume."
        )


def _nodes() -> list[Node]:
    """Return the live nodes that models run on: those with GPUs if there are any, else all."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    check_alive(here)
    alive = alive_nodes()
    cpus = {node.id: node.cpus for node in alive}
    reserved = float(os.environ.get(DRIVER_CPUS, "0"))
    # With several nodes on one machine, Ray may report another one than the one that runs the driver.
    cpus[here if cpus.get(here, 0.0) >= reserved else max(cpus, key=lambda node: cpus[node])] -= reserved
    nodes = [node._replace(cpus=int(cpus[node.id])) for node in alive]
    return [node for node in nodes if node.gpus] or nodes


def _capacity(nodes: Sequence[Node], cores: int, per_gpu: int = 1) -> int:
    """Return how many training workers with that many cores, and a GPU or a part of it if there are any, fit."""
    return sum(int(min(node.cpus // cores, per_gpu * node.gpus or node.cpus)) for node in nodes)


def room_for_workers(resources: Resources) -> int:
    """Return how many such training workers fit on the live nodes, as if all were idle."""
    nodes = [node for node in _nodes() if node.gpus or not resources.use_gpu]
    return _capacity(nodes, resources.cpus_per_worker, resources.workers_per_gpu)


def _max_cores(nodes: Sequence[Node], num_workers: int, per_gpu: int = 1) -> int:
    """Return the maximum number of cores per training worker with which that many workers fit.

    With GPUs it is at most 8, and one core of each node is left free if the node has more cores than GPUs.
    """
    if nodes[0].gpus:
        nodes = [node._replace(cpus=node.cpus - (node.cpus > node.gpus)) for node in nodes]
    limit = 8 if nodes[0].gpus else int(max(node.cpus for node in nodes))
    return max((cores for cores in range(1, limit + 1) if _capacity(nodes, cores, per_gpu) >= num_workers), default=1)


def available(num_workers: int | None = None) -> Resources:
    """Return the resources of a run on this cluster, on its nodes with GPUs if there are any.

    `num_workers` are training workers; None takes one per GPU, or one without GPUs.
    """
    nodes = _nodes()
    gpus, capacity = sum(node.gpus for node in nodes), _capacity(nodes, 1)
    workers = num_workers or max(1, gpus)
    if workers > capacity:
        raise SettingError(
            f"{workers} training workers do not fit: the cluster has {capacity} {'GPUs' if gpus else 'CPU cores'} for "
            f"them. Add nodes{f', or use --workers {capacity} or fewer' if capacity else ''}."
        )
    cores = _max_cores(nodes, workers)
    return Resources(workers, gpus > 0, cores, num_scorers=gpus or capacity, num_cpu_tasks=_cores() if gpus else None)


_CORES_PER_TRIAL = 4  # for its training, and about six processes that Ray Train starts for it
_BYTES_PER_TRIAL = 4 * 2**30


def available_to_trials(num_workers: int | None = None, concurrent: int | None = None) -> tuple[Resources, int]:
    """Return the resources of each trial of a sweep, and how many trials run concurrently.

    `num_workers` are training workers per trial, by default one, with a GPU or four CPU cores; `concurrent` trials run
    at a time, by default as many as fit. More trials of one worker than GPUs share these.
    """
    import ray

    nodes = _nodes()
    gpus, workers = sum(node.gpus for node in nodes), num_workers or 1
    # Workers of one training don't share a GPU: NCCL refuses that.
    per_gpu = -(-concurrent // gpus) if gpus and concurrent and workers == 1 else 1
    capacity = _capacity(nodes, 1, per_gpu)
    memory = int(ray.cluster_resources()["memory"])
    by_cores = capacity // workers if gpus else capacity // max(workers, _CORES_PER_TRIAL)
    trials = concurrent or max(1, by_cores if gpus else min(by_cores, memory // _BYTES_PER_TRIAL))
    if workers * trials > capacity:
        raise SettingError(
            f"{trials} concurrent trials with {workers} training workers each do not fit: the cluster has {capacity} "
            f"{'GPUs' if gpus and per_gpu == 1 else 'CPU cores'} for them. Use a smaller --concurrent or --workers, or "
            "add nodes."
        )
    cores = _max_cores(nodes, workers * trials, per_gpu)
    each = Resources(workers, gpus > 0, cores, max(1, capacity // trials), workers_per_gpu=per_gpu)
    return replace(each, num_cpu_tasks=max(1, _cores() // trials)) if gpus else each, trials


def _cores() -> int:
    """Return the number of cores of all nodes, those without GPUs included."""
    return int(sum(node.cpus for node in alive_nodes()))


def parallel_map(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Apply a function to items in Ray tasks and yield the results in order; two tasks per core are in flight.

    An IcalibError says that the processes of a task died, or their nodes; other errors are the function's own.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    name = getattr(function, "__name__", type(function).__name__)
    task = ray.remote(num_cpus=1, max_retries=3)(_applied).options(name=name)
    window = 2 * int(ray.cluster_resources().get("CPU", 1))
    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(task.remote(function, item))
            if len(waiting) >= window:
                yield ray.get(waiting.popleft())
        while waiting:
            yield ray.get(waiting.popleft())
    except RayTaskError as error:  # as the function raised it, without Ray's traceback in its text
        raise error.cause from error
    except RayError as error:
        raise IcalibError(
            f"`{name}` failed on the nodes after 3 retries: {error} If memory ran out, give the nodes more, or fewer "
            "CPUs. Run the same command again."
        ) from error


def _applied(function: Callable[[T], R], item: T) -> R:
    with component_of_this_node():
        return function(item)


def protect_token(note: Callable[[str], None], *, create: bool) -> None:
    """Let this user alone read Ray's token, and open ~/.ray, where it is: who has it can run code as this user.

    Nothing is done where the environment has the token, or none is required; of a file that it names, only this user's
    own is changed. `create` makes a missing folder.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    named, folder = os.environ.get("RAY_AUTH_TOKEN_PATH"), Path.home() / ".ray"
    path = Path(named) if named else folder
    try:
        if create and not named:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (Path(named),) if named else (folder, folder / "auth_token"):
            found = path.stat() if path.exists() else None
            mode = stat.S_IMODE(found.st_mode) if found else 0
            if found and mode & (stat.S_IRWXG | stat.S_IRWXO) and found.st_uid == os.getuid():
                path.chmod(mode & stat.S_IRWXU)
                note(f"{path} was accessible to other users (mode {mode:04o}); changed to {mode & stat.S_IRWXU:04o}")
    except OSError as error:
        note(f"warning: can't restrict the access to {path} ({error}); other users may read your clusters' token")
