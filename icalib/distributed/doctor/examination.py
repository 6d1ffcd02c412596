"""All checks of a cluster, in order."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from icalib.core.check import Check, by_node
from icalib.core.errors import IcalibError
from icalib.core.storage import local_path, location, pull
from icalib.distributed.doctor.machine import (
    check_disk,
    check_gpus,
    check_token,
    check_versions,
    inspect_machine,
    versions,
)
from icalib.distributed.doctor.nodes import alive_nodes, ask
from icalib.distributed.doctor.rehearsal import check_workers, rehearse
from icalib.distributed.doctor.storage import check_storage, clear
from icalib.distributed.session import start
from icalib.pipeline.resources import Resources
from icalib.pipeline.tiny import tiny_jobs


@dataclass(frozen=True)
class Wanted:
    """The requirements of a run.

    Args:
        runs: the folder for runs, on storage that all nodes share.
        num_workers: training workers; two have to reach each other.
    """

    runs: Path
    num_workers: int = 2


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
    on_begin("the machine of every node")
    nodes = alive_nodes()
    answers = ask(nodes, inspect_machine)
    if answers.refused:
        cure = "Install the same icalib there as here, check whether the node is overloaded, or remove it."
        yield Check("nodes", "fail", by_node(answers.refused), cure)
    else:
        yield Check("nodes", "ok", by_node({node.name: f"{node.cpus:g} CPUs, {node.gpus} GPUs" for node in nodes}))
    nodes, machines = [node for node in nodes if node.name in answers.given], answers.given
    if not nodes:
        return
    yield check_versions({"this process": versions(), **{node: one.versions for node, one in machines.items()}})
    yield check_gpus(nodes, machines)
    yield check_disk(machines)
    yield check_token(nodes, machines)
    on_begin("storage from every node")
    folder = wanted.runs / f"doctor-{secrets.token_hex(4)}"
    resources = Resources(wanted.num_workers, any(node.gpus for node in nodes), 1, num_scorers=2)
    needed = [check_storage(nodes, folder), check_workers(resources)]
    yield from needed
    if any(check.status != "ok" for check in needed):
        yield Check("training step", "warn", "skipped", "Do first what storage and workers need.")
        return
    on_begin(f"training and scoring by {resources.num_workers} workers")
    try:
        training, scoring = tiny_jobs(folder, resources.num_workers)
        ask(nodes, fetch, location(folder))
        yield from rehearse(training, scoring, folder, resources)
    finally:
        ask(nodes, clear, location(folder))


def fetch(folder: str) -> None:
    """Copy the files of `tiny_jobs` to this node if they are in an object store."""
    pull(local_path(folder))
