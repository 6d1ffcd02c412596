"""Tasks and workers that say which GPUs Ray gave them, on nodes whose GPUs are a number and no device."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from distributed.drivers import wait_for

from icalib.core.events import ignore
from icalib.core.files import write_json
from icalib.core.job import ShardedJob
from icalib.pipeline.resources import Resources


class Letters(ShardedJob):
    """Shards without content."""

    verb: ClassVar[str] = "writing"

    number: int

    def shards(self) -> Sequence[int]:
        return range(self.number)

    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"letter-{index}"


@dataclass(frozen=True)
class Chains:
    """A part of a posterior that says where it ran."""

    folder: Path
    number: int

    def run(self) -> int:
        with Traced(self.folder, "chain"):
            return self.number


class Traced:
    """Writes a line on what this process has been given, with its begin and end, to `folder`/trace.

    It ends when as many processes have begun as `folder`/meet says: so many have run at the same time.
    """

    def __init__(self, folder: Path, what: str, **more: object) -> None:
        self._folder, self._fields = folder, {"what": what, **more}

    def __enter__(self) -> None:
        self._begin = time.time()
        _append(self._folder / "begun", {"pid": os.getpid()})
        needed = int((self._folder / "meet").read_text())
        wait_for(lambda: len(read_lines(self._folder / "begun")) >= needed, lambda: True, seconds=120)

    def __exit__(self, *_: object) -> None:
        _append(self._folder / "trace", {**self._fields, **given(), "span": [self._begin, time.time()]})


def given() -> dict[str, Any]:
    """The node, cores and GPUs of this process, and the GPUs that CUDA would show it."""
    import ray

    context = ray.get_runtime_context()
    assigned = context.get_assigned_resources()
    return {
        "node": context.get_node_id(),
        "gpus": context.get_accelerator_ids()["GPU"],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "num_gpus": assigned.get("GPU", 0.0),
        "num_cpus": assigned.get("CPU", 0.0),
    }


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was written so far; none yet is fine."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _append(path: Path, fields: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(fields) + "\n")


def train_nothing(config: dict[str, Any]) -> None:
    """A training worker that says what it has been given, and no more."""
    import ray.train
    import ray.train.torch

    context, folder = ray.train.get_context(), Path(config["folder"])
    device = str(ray.train.torch.get_device())
    with Traced(folder, "trainer", rank=context.get_world_rank(), threads=config["threads"], device=device):
        if context.get_world_rank() == 0:
            write_json(folder / "result.json", {"world_size": context.get_world_size()})


def compute_nothing(fields: str, shards: Sequence[tuple[int, Any]], folder: str) -> None:
    """Compute shards without content."""
    with Traced(Path(folder), "scorer", shards=[number for number, _ in shards]):
        for number, _ in shards:
            (Path(folder) / f"letter-{number}").touch()


def run_trial_of_nothing(config: dict[str, Any]) -> None:
    """A trial that only scores, with the resources that its sweep has planned."""
    from ray import tune

    from icalib.distributed import shards

    job = json.loads(config["job"])
    folder = Path(job["folder"])
    _append(folder / "trials", given())
    scratch = folder / f"trial-{job['number']}"
    scratch.mkdir()
    shards._compute_shards = lambda fields, described, _: compute_nothing(fields, described, str(folder))
    shards.map_shards(Letters(number=1), scratch, Resources(**job["resources"]), "scores", ignore)
    tune.report({"state": "complete", "values": [0.0]})
