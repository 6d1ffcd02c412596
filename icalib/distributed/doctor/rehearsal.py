"""Checks that train and score with a tiny ranker: every step of a run, in seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from icalib.core.check import Check
from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import read_json
from icalib.core.storage import local_path, pull
from icalib.distributed.engine import load_deepspeed
from icalib.distributed.session import room_for_workers
from icalib.distributed.shards import map_shards
from icalib.distributed.training import train
from icalib.pipeline.resources import Resources
from icalib.scoring.job import ScoreJob
from icalib.training.answers import TrainJob

_STEP, _SHARD = "training step", "scored shard"
_TIMEOUT_S = 300.0


def check_workers(resources: Resources) -> Check:
    """Check that the training workers fit on the cluster, and that enough of it is idle now."""
    import ray

    wanted, kind = resources.num_workers, "GPU" if resources.use_gpu else "CPU"
    room = room_for_workers(resources)
    if room < wanted:
        return Check(
            "workers",
            "fail",
            f"{wanted} training workers requested, and the nodes have room for {room}",
            f"Add nodes, or use --workers {room}." if room else f"Add nodes with {kind}s.",
        )
    idle = int(ray.available_resources().get(kind, 0))
    if idle < wanted:
        return Check(
            "workers",
            "warn",
            f"{wanted} training workers fit, but only {idle} {kind}s are idle now",
            "Wait for the jobs that use them (`icalib jobs`), or stop those jobs; then run this command again.",
        )
    return Check("workers", "ok", f"{wanted} fit, one {kind} each; room for {room}")


def check_training(job: TrainJob, folder: Path, resources: Resources) -> Check:
    """Check that Ray Train and DeepSpeed run some updates, with checkpoints on the storage."""
    load_deepspeed()  # before transformers imports it with its start-up output
    error = _error_of(lambda: train(job, folder, resources, "training", ignore))
    if error:
        return Check(
            _STEP,
            "fail",
            error,
            "If the message does not explain it: workers must reach each other on any port (check firewalls and "
            "security groups); on nodes with several network interfaces set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
        )
    result = read_json(folder / "result.json")
    return Check(_STEP, "ok", f"{result['updates']} updates by {result['world_size']} workers ({result['device']})")


def check_scoring(job: ScoreJob, folder: Path, resources: Resources) -> Check:
    """Check that Ray tasks score all shards."""
    error = _error_of(lambda: map_shards(job, folder, resources, "scoring", ignore))
    if error:
        return Check(_SHARD, "fail", error, "See the message; the output of the task is in the node's Ray logs.")
    number = len(job.shards())
    pairs = sum(pq.read_metadata(job.shard_path(folder, index)).num_rows for index in range(number))
    return Check(_SHARD, "ok", f"{number} shards, {pairs} pairs")


def _error_of(action: Callable[[], None]) -> str:
    """Return the error of an action in one line, or an empty string if it succeeds in time."""
    errors = [f"did not finish within {_TIMEOUT_S:.0f} s"]

    def attempt() -> None:
        try:
            action()
            errors.clear()
        except (IcalibError, OSError) as error:
            errors[:] = [" ".join(str(error).split())]
        except Exception as error:  # any defect of a machine is to be reported as a failed check
            errors[:] = [" ".join(f"{type(error).__name__}: {error}".split())]

    thread = threading.Thread(target=attempt, daemon=True)  # workers wait for each other for up to half an hour
    thread.start()
    thread.join(_TIMEOUT_S)
    return "".join(errors)


def fetch(folder: str) -> None:
    """Copy the files of `tiny_jobs` to this node if they are in an object store."""
    pull(local_path(folder))
