"""All checks of a cluster, in order."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from icalib.core.check import Check, by_node
from icalib.core.errors import IcalibError
from icalib.core.storage import location
from icalib.distributed.doctor.inputs import check_data, check_model
from icalib.distributed.doctor.machine import check_clocks, check_free_space, check_gpus, check_versions
from icalib.distributed.doctor.nodes import Answers, Node, alive_nodes, ask
from icalib.distributed.doctor.rehearsal import check_scoring, check_training, check_workers, fetch
from icalib.distributed.doctor.security import check_security
from icalib.distributed.doctor.storage import check_storage, clear
from icalib.distributed.session import start
from icalib.pipeline.resources import Resources
from icalib.pipeline.tiny import tiny_jobs

DEFAULT_WORKERS = 2
"""Training workers of the rehearsal: with two, workers have to reach each other."""


@dataclass(frozen=True)
class Wanted:
    """The requirements of a run.

    Args:
        runs: the folder for runs, on storage that all nodes share.
        backbone: name or folder of the encoder.
        data: pool folder; None skips the check of the data.
        num_workers: training workers.
    """

    runs: Path
    backbone: str
    data: Path | None = None
    num_workers: int = DEFAULT_WORKERS


def join(address: str | None) -> Check:
    """Start Ray or join the cluster at the address, and return the check of that."""
    notes: list[str] = []
    try:
        start(address, note=notes.append)
    except (IcalibError, RuntimeError, ValueError) as error:  # some of Ray's own errors are RuntimeErrors
        return Check(
            "cluster",
            "fail",
            " ".join(str(error).split()),
            "Pass the address of the head's GCS, HOST:6379. Ray and Python must have the same versions here as on the "
            "cluster, and RAY_AUTH_TOKEN_PATH must name a file with its token.",
        )
    return Check("cluster", "ok", "; ".join([f"joined {address}" if address else "this machine", *notes]))


def examine(wanted: Wanted, on_begin: Callable[[str], None]) -> Iterator[Check]:
    """Check the cluster that was joined; nodes that don't answer are left out of later checks.

    Args:
        wanted: the requirements of the run.
        on_begin: called with a description of what is checked next.
    """
    on_begin("versions on every node")
    nodes = alive_nodes()
    versions, answers = check_versions(nodes)
    yield _check_nodes(nodes, answers)
    yield versions
    nodes = [node for node in nodes if node.name in answers.given]
    if not nodes:
        return
    on_begin("GPUs, memory, disk, clocks")
    yield check_gpus(nodes)
    yield check_free_space(nodes)
    yield check_clocks(nodes)
    yield from check_security(nodes)
    on_begin(f"the backbone {wanted.backbone} on every node")
    yield check_model(nodes, wanted.backbone)
    if wanted.data is not None:
        on_begin("the pools on every node")
        yield check_data(nodes, wanted.data)
    on_begin("storage from every node")
    folder = wanted.runs / f"doctor-{secrets.token_hex(4)}"
    storage = check_storage(nodes, folder)
    yield storage
    resources = Resources(wanted.num_workers, any(node.gpus for node in nodes), 1, num_scorers=2)
    workers = check_workers(resources)
    yield workers
    yield from _rehearsal(nodes, folder, resources, [storage, workers], on_begin)


def _check_nodes(nodes: Sequence[Node], answers: Answers[dict[str, str]]) -> Check:
    if answers.refused:
        return Check(
            "nodes",
            "fail",
            by_node(answers.refused),
            "Install the same icalib there as here, check whether the node is overloaded, or remove it from the "
            "cluster.",
        )
    resources = {node.name: f"{node.cpus:g} CPUs" + (f" and {node.gpus} GPUs" if node.gpus else "") for node in nodes}
    return Check("nodes", "ok", by_node(resources))


def _rehearsal(
    nodes: Sequence[Node], folder: Path, resources: Resources, before: Sequence[Check], on_begin: Callable[[str], None]
) -> Iterator[Check]:
    """Check a training step and scoring, if the checks before them passed."""
    not_ok = [check.name for check in before if check.status != "ok"]
    if not_ok:
        yield Check("training step", "warn", f"skipped: see {' and '.join(not_ok)}", "Fix that first.")
        return
    on_begin(f"a training step by {resources.num_workers} workers")
    try:
        training, scoring = tiny_jobs(folder, resources.num_workers)
        ask(nodes, fetch, location(folder))
        trained = check_training(training, folder / "training", resources)
        yield trained
        if trained.status == "ok":
            on_begin("scoring two shards")
            yield check_scoring(scoring, folder / "scores", resources)
    finally:
        ask(nodes, clear, location(folder))
