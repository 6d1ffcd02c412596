"""Starting or joining Ray, quietly; what there is to work with."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from icalib.core.errors import SettingError

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


@dataclass(frozen=True)
class Resources:
    """What training and scoring may use.

    Args:
        num_workers: training workers.
        use_gpu: one GPU a training worker, and scoring tasks on GPUs.
        cpus_per_worker: CPU cores (and threads) of a training worker.
        num_scorers: scoring tasks at a time.
    """

    num_workers: int
    use_gpu: bool
    cpus_per_worker: int
    num_scorers: int

    def shared_by(self, number: int) -> tuple[Resources, int]:
        """What each of `number` trainings side by side may use, and how many fit at a time."""
        if self.num_workers > 1:
            each = max(1, self.num_workers // number)
            return replace(self, num_workers=each), self.num_workers // each
        if self.use_gpu:
            return self, 1
        each = max(1, self.cpus_per_worker // number)
        return replace(self, cpus_per_worker=each), self.cpus_per_worker // each


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
    for name, value in {**EVERYWHERE, **({} if address else LOCAL_ENVIRONMENT)}.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return
    shared: dict[str, Any] = {
        "logging_level": "ERROR",
        "log_to_driver": False,
        "runtime_env": {"worker_process_setup_hook": quiet_worker, "env_vars": EVERYWHERE},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray announces a later default of its GPU variables
        if not address:
            ray.init(
                num_cpus=num_cpus or os.cpu_count(), include_dashboard=False, object_store_memory=256 * 2**20, **shared
            )
            return
        try:
            ray.init(address=address, **shared)
        except ConnectionError as error:
            raise SettingError(
                f"no Ray cluster answers at {address} ({error}). Check the address and the token "
                "(RAY_AUTH_TOKEN_PATH), or leave --address out to work on this machine."
            ) from error


def stop() -> None:
    """Leave Ray; a local one ends."""
    import ray

    ray.shutdown()


def available(num_workers: int | None = None) -> Resources:
    """Plan for the resources that the cluster has.

    Raises:
        SettingError: more workers are asked for than fit.
    """
    import ray

    total = ray.cluster_resources()
    cpus, gpus = int(total.get("CPU", 0)), int(total.get("GPU", 0))
    workers = num_workers or max(1, gpus)
    most = gpus or cpus
    if workers > most:
        raise SettingError(
            f"--workers {workers} asks for more than there is: {most} {'GPUs' if gpus else 'CPU cores'}. "
            f"Give --workers {most} or fewer, or add nodes."
        )
    per_worker = max(1, cpus // workers if not gpus else min(8, cpus // (workers + 1)))
    return Resources(workers, gpus > 0, per_worker, num_scorers=gpus or max(1, cpus))


_CORES_OF_A_TRIAL = 4  # its training, and the half dozen processes that Ray Train starts for it
_BYTES_OF_A_TRIAL = 4 * 2**30


def available_to_trials(num_workers: int | None = None, concurrent: int | None = None) -> tuple[Resources, int]:
    """What each trial of a sweep may use, and how many run side by side.

    Unless told otherwise a trial has one training worker, and a GPU for it or four CPU cores.

    Raises:
        SettingError: more is asked for than fits.
    """
    import ray

    total = ray.cluster_resources()
    cpus, gpus = int(total.get("CPU", 0)), int(total.get("GPU", 0))
    workers, most = num_workers or 1, gpus or cpus
    room = (
        gpus // workers
        if gpus
        else min(cpus // max(workers, _CORES_OF_A_TRIAL), int(total["memory"]) // _BYTES_OF_A_TRIAL)
    )
    at_once = concurrent or max(1, room)
    if workers * at_once > most:
        raise SettingError(
            f"{at_once} trials side by side with {workers} training workers each are more than there is: {most} "
            f"{'GPUs' if gpus else 'CPU cores'}. Give a smaller --concurrent or --workers, or add nodes."
        )
    per_worker = max(1, min(8, cpus // (workers * at_once + 1)) if gpus else cpus // (workers * at_once))
    return Resources(workers, gpus > 0, per_worker, num_scorers=max(1, most // at_once)), at_once


def parallel_map(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Map over items by Ray tasks, in order; a few items are under way at a time."""
    import ray

    task = ray.remote(num_cpus=1, max_retries=3)(function)
    yield from _windowed((task.remote(item) for item in items), window=2 * available().num_scorers)


def _windowed(references: Iterable[Any], window: int) -> Iterator[Any]:
    import ray

    waiting: list[Any] = []
    for reference in references:
        waiting.append(reference)
        if len(waiting) >= window:
            yield ray.get(waiting.pop(0))
    for reference in waiting:
        yield ray.get(reference)
