"""Starting or joining Ray, quietly; what there is to work with."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from icalib.core.errors import SettingError
from icalib.pipeline.executor import Resources

T = TypeVar("T")
R = TypeVar("R")

# Set before ray is imported; a local Ray listens on loopback only, sends no telemetry and polls its workers often.
LOCAL_ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # binds 127.0.0.1; never set on a real cluster
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # the default of 2 s costs every short run 3 to 5 s
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # Scoring processes wait through a training for the next scores: importing torch anew takes longer than a shard.
    "RAY_num_workers_soft_limit": "8",
    "RAY_idle_worker_killing_time_threshold_ms": "1800000",
}
EVERYWHERE = {
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # What oneDNN and ideep keep of every shape of a bf16 product: by default 1024 each, hundreds of MiB a process.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32",
    "LRU_CACHE_CAPACITY": "32",
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while another process has their core slow both down tenfold
}

_CONNECT_S = 10.0

DRIVER_CPUS = "ICALIB_DRIVER_CPUS"
"""In a submitted job: the CPU cores that its own process holds, which no training can have."""


def quiet_worker() -> None:
    """Runs first in every Ray worker: notices that are no news stay away."""
    logging.getLogger("ray.train.v2._internal.execution.controller.placement_group_cleaner").setLevel(logging.ERROR)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")


def start(address: str | None = None, num_cpus: int | None = None) -> None:
    """Join the cluster at `address` (or the one this process was submitted to), else start a local Ray.

    Raises:
        SettingError: no cluster answers at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    # A job's own environment may set what is set here too, for all its workers; Ray takes that for a conflict.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    for name, value in {**EVERYWHERE, **({} if address else LOCAL_ENVIRONMENT)}.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return
    shared: dict[str, Any] = {
        "logging_level": "ERROR",
        "log_to_driver": False,
        "runtime_env": {
            "worker_process_setup_hook": quiet_worker,
            "env_vars": {name: os.environ[name] for name in EVERYWHERE},
        },
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray announces a later default of its GPU variables
        if not address:
            ray.init(
                address="local",  # without it Ray joins whatever cluster was started last on this machine
                num_cpus=num_cpus or os.cpu_count(),
                include_dashboard=False,
                object_store_memory=256 * 2**20,
                **shared,
            )
            return
        try:
            _check_listening(address)
            ray.init(address=address, **shared)
        except (OSError, ValueError) as error:
            raise SettingError(
                f"no Ray cluster answers at {address} ({error}). Check the address and the token "
                "(RAY_AUTH_TOKEN_PATH), or leave --address out to work on this machine."
            ) from error


def _check_listening(address: str) -> None:
    """Ray itself tries for minutes to reach a head that isn't there, and prints all the while."""
    place = urlsplit(address if "//" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=_CONNECT_S).close()


def stop() -> None:
    """Leave Ray; a local one ends."""
    import ray

    ray.shutdown()


@dataclass(frozen=True)
class _Node:
    """What a node of the cluster has, busy or not."""

    cpus: int
    gpus: int


def _nodes() -> list[_Node]:
    """The nodes that are alive and that models run on: those with GPUs if there are any."""
    import ray

    alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    cpus = {name: has.get("CPU", 0.0) for name, has in alive.items()}
    held, here = float(os.environ.get(DRIVER_CPUS, "0")), ray.get_runtime_context().get_node_id()
    # Of several nodes on one machine Ray may name another than the one that holds the driver.
    cpus[here if cpus.get(here, 0.0) >= held else max(cpus, key=lambda name: cpus[name])] -= held
    nodes = [_Node(int(cpus[name]), int(has.get("GPU", 0))) for name, has in alive.items()]
    return [node for node in nodes if node.gpus] or nodes


def _room(nodes: Sequence[_Node], cores: int) -> int:
    """Training workers of so many cores, and a GPU where there are any, that fit; none spans nodes."""
    return sum(min(node.cpus // cores, node.gpus or node.cpus) for node in nodes)


def room_for_workers(resources: Resources) -> int:
    """How many such training workers the nodes that are alive could hold, were they idle."""
    return _room([node for node in _nodes() if node.gpus or not resources.use_gpu], resources.cpus_per_worker)


def _most_cores(nodes: Sequence[_Node], workers: int) -> int:
    """The most cores that each of so many training workers can have.

    Beside a GPU at most 8, and a core of each node is for others where there are enough.
    """
    if nodes[0].gpus:
        nodes = [replace(node, cpus=node.cpus - (node.cpus > node.gpus)) for node in nodes]
    most = 8 if nodes[0].gpus else max(node.cpus for node in nodes)
    return max((cores for cores in range(1, most + 1) if _room(nodes, cores) >= workers), default=1)


def available(num_workers: int | None = None) -> Resources:
    """Plan for the resources that the cluster has; models run on nodes with GPUs if there are any.

    Raises:
        SettingError: more workers are asked for than fit.
    """
    nodes = _nodes()
    gpus, most = sum(node.gpus for node in nodes), _room(nodes, 1)
    workers = num_workers or max(1, gpus)
    if workers > most:
        raise SettingError(
            f"{workers} training workers are more than fit: there are {most} {'GPUs' if gpus else 'CPU cores'}. "
            f"Add nodes{f', or give --workers {most} or fewer' if most else ''}."
        )
    return Resources(workers, gpus > 0, _most_cores(nodes, workers), num_scorers=gpus or most)


_CORES_OF_A_TRIAL = 4  # its training, and the half dozen processes that Ray Train starts for it
_BYTES_OF_A_TRIAL = 4 * 2**30


def available_to_trials(num_workers: int | None = None, concurrent: int | None = None) -> tuple[Resources, int]:
    """What each trial of a sweep may use, and how many run side by side.

    Unless told otherwise a trial has one training worker, and a GPU for it or four CPU cores.

    Raises:
        SettingError: more is asked for than fits.
    """
    import ray

    nodes = _nodes()
    gpus, workers, most = sum(node.gpus for node in nodes), num_workers or 1, _room(nodes, 1)
    memory = int(ray.cluster_resources()["memory"])
    room = most // workers if gpus else min(most // max(workers, _CORES_OF_A_TRIAL), memory // _BYTES_OF_A_TRIAL)
    at_once = concurrent or max(1, room)
    if workers * at_once > most:
        raise SettingError(
            f"{at_once} trials side by side with {workers} training workers each are more than fit: there are {most} "
            f"{'GPUs' if gpus else 'CPU cores'}. Give a smaller --concurrent or --workers, or add nodes."
        )
    cores = _most_cores(nodes, workers * at_once)
    return Resources(workers, gpus > 0, cores, num_scorers=max(1, most // at_once)), at_once


def parallel_map(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Map over items by Ray tasks, in order; a few items are under way at a time."""
    import ray

    task = ray.remote(num_cpus=1, max_retries=3)(function)
    cores = int(ray.cluster_resources().get("CPU", 1))
    yield from _windowed((task.remote(item) for item in items), window=2 * cores)


def _windowed(references: Iterable[Any], window: int) -> Iterator[Any]:
    import ray

    waiting: list[Any] = []
    for reference in references:
        waiting.append(reference)
        if len(waiting) >= window:
            yield ray.get(waiting.pop(0))
    for reference in waiting:
        yield ray.get(reference)
