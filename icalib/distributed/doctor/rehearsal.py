"""A training step and a scored shard of a tiny ranker: the whole path of a run, in seconds."""

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
from icalib.pipeline.executor import Resources
from icalib.scoring.job import ScoreJob
from icalib.training.answers import TrainJob

_STEP, _SHARD = "training step", "scored shard"
_PATIENCE_S = 300.0


def check_workers(resources: Resources) -> Check:
    """Whether so many training workers fit, and find room now."""
    import ray

    wanted, kind = resources.num_workers, "GPU" if resources.use_gpu else "CPU"
    room = room_for_workers(resources)
    if room < wanted:
        return Check(
            "workers",
            "fail",
            f"{wanted} training workers are asked for, and the nodes have room for {room}",
            f"Add nodes, or give --workers {room}." if room else f"Add nodes with {kind}s.",
        )
    idle = int(ray.available_resources().get(kind, 0))
    if idle < wanted:
        return Check(
            "workers",
            "warn",
            f"{wanted} training workers fit, but only {idle} {kind}s are idle now",
            "Wait for the jobs that hold them (`icalib jobs`), or stop them, then look again.",
        )
    return Check("workers", "ok", f"{wanted} fit, one {kind} each; room for {room}")


def check_training(job: TrainJob, folder: Path, resources: Resources) -> Check:
    """Some updates by Ray Train and DeepSpeed, checkpoints through the storage."""
    load_deepspeed()  # quietly: transformers imports it when it builds a model
    fault = _fault_of(lambda: train(job, folder, resources, "training", ignore))
    if fault:
        return Check(
            _STEP,
            "fail",
            fault,
            "Where it says nothing better: the workers must reach each other on any port (firewalls, security groups); "
            "with several network cards set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on the nodes.",
        )
    facts = read_json(folder / "result.json")
    return Check(_STEP, "ok", f"{facts['updates']} updates by {facts['world_size']} workers ({facts['device']})")


def check_scoring(job: ScoreJob, folder: Path, resources: Resources) -> Check:
    """Two shards, each by a Ray task."""
    fault = _fault_of(lambda: map_shards(job, folder, resources, "scoring", ignore))
    if fault:
        return Check(_SHARD, "fail", fault, "See the message; what the task has printed is in the node's Ray log.")
    number = len(job.shards())
    pairs = sum(pq.read_metadata(job.shard_path(folder, place)).num_rows for place in range(number))
    return Check(_SHARD, "ok", f"{number} shards, {pairs} pairs")


def _fault_of(act: Callable[[], None]) -> str:
    """What went wrong, in one line; empty if nothing did."""
    faults = [f"not done within {_PATIENCE_S:.0f} s"]

    def attempt() -> None:
        try:
            act()
            faults.clear()
        except (IcalibError, OSError) as error:
            faults[:] = [" ".join(str(error).split())]
        except Exception as error:  # whatever is broken on a machine, this is where it is to be told
            faults[:] = [" ".join(f"{type(error).__name__}: {error}".split())]

    thread = threading.Thread(target=attempt, daemon=True)  # workers that wait for each other wait for half an hour
    thread.start()
    thread.join(_PATIENCE_S)
    return "".join(faults)


def fetch(place: str) -> None:
    """Bring what `tiny_jobs` has written to this node, where it lies in an object store."""
    pull(local_path(place))
