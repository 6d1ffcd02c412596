"""Checks that train and score with a tiny ranker: every step of a run, in seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from icalib.core.check import Check
from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import read_json
from icalib.distributed.engine import load_deepspeed
from icalib.distributed.session import room_for_workers
from icalib.distributed.shards import map_shards
from icalib.distributed.training import train
from icalib.pipeline.resources import Resources
from icalib.scoring.job import ScoreJob
from icalib.training.answers import TrainJob

_TIMEOUT_S = 300.0


def check_workers(resources: Resources) -> Check:
    """Check that the training workers fit on the cluster, and that enough of it is idle now."""
    import ray

    wanted, kind = resources.num_workers, "GPU" if resources.use_gpu else "CPU"
    room, idle = room_for_workers(resources), int(ray.available_resources().get(kind, 0))
    if room < wanted:
        return Check(
            "workers",
            "fail",
            f"{wanted} training workers requested, and the nodes have room for {room}",
            f"Add nodes, or use --workers {room}." if room else f"Add nodes with {kind}s.",
        )
    if idle < wanted:
        return Check(
            "workers",
            "warn",
            f"{wanted} training workers fit, but only {idle} {kind}s are idle now",
            "Wait for the jobs that use them (`icalib jobs`), or stop those jobs; then run this command again.",
        )
    return Check("workers", "ok", f"{wanted} fit, one {kind} each; room for {room}")


def rehearse(training: TrainJob, scoring: ScoreJob, folder: Path, resources: Resources) -> Iterator[Check]:
    """Check that Ray Train and DeepSpeed run some updates with checkpoints on the storage, and that Ray tasks score.

    Args:
        training, scoring: jobs whose inputs every node has.
        folder: where their results go.
        resources: what they may use.
    """
    load_deepspeed()  # before transformers imports it with its start-up output
    error = error_of(lambda: train(training, folder / "training", resources, "training", ignore))
    if error:
        yield Check(
            "training step",
            "fail",
            error,
            "If the message does not explain it: workers must reach each other on any port (check firewalls and "
            "security groups); on nodes with several network interfaces set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
        )
        return
    done = read_json(folder / "training" / "result.json")
    yield Check("training step", "ok", f"{done['updates']} updates by {done['world_size']} workers ({done['device']})")
    error = error_of(lambda: map_shards(scoring, folder / "scores", resources, "scoring", ignore))
    if error:
        yield Check("scored shards", "fail", error, "See the message; the task's output is in the node's Ray logs.")
    else:
        yield Check("scored shards", "ok", f"{len(scoring.shards())}")


def error_of(action: Callable[[], None]) -> str:
    """Return the error of an action in one line, or an empty string if it succeeds in time."""
    errors = [f"did not finish within {_TIMEOUT_S:.0f} s"]

    def attempt() -> None:
        try:
            action()
            errors.clear()
        except Exception as error:  # any defect of a machine is to be reported as a failed check
            name = "" if isinstance(error, IcalibError | OSError) else f"{type(error).__name__}: "
            errors[:] = [" ".join(f"{name}{error}".split())]

    thread = threading.Thread(target=attempt, daemon=True)  # workers wait for each other for up to half an hour
    thread.start()
    thread.join(_TIMEOUT_S)
    return "".join(errors)
