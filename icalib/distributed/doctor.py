"""The checks of `icalib doctor`, which find problems of a machine or cluster before a run costs money."""

from __future__ import annotations

import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from icalib.core.check import Check
from icalib.core.errors import IcalibError
from icalib.core.events import ignore
from icalib.core.files import atomic_write, content_digest, file_digest, read_json
from icalib.core.hosts import is_loopback
from icalib.core.storage import local_path, location, pull, push, remove
from icalib.core.text import listed
from icalib.core.version import __version__
from icalib.distributed.engine import load_deepspeed
from icalib.distributed.executor import map_shards
from icalib.distributed.session import Node, alive_nodes, room_for_workers, start
from icalib.distributed.training import train
from icalib.pipeline.tiny import tiny_jobs
from icalib.stages.resources import Resources

R = TypeVar("R")

_ANSWER_S = 180.0  # that a node may take to answer; the first answer includes the start of a process and its imports
_VISIBLE_S = 10.0  # after which a network file system shows other nodes' files
_TRAINED_S = 300.0
_PACKAGES = ("ray", "torch", "transformers", "deepspeed")


def join(address: str | None) -> Check:
    """Start Ray or join the cluster at the address, and return the check of that."""
    notes: list[str] = []
    address = address or os.environ.get("RAY_ADDRESS")
    try:
        start(address, note=notes.append)
    except IcalibError as error:
        return Check(
            "cluster",
            "fail",
            " ".join(str(error).split()),
            "Pass the address of the head's GCS, HOST:6379. Ray and Python must have the same versions here as on the "
            "cluster, and RAY_AUTH_TOKEN_PATH must name a file with its token.",
        )
    return Check("cluster", "ok", "; ".join([f"joined {address}" if address else "this machine", *notes]))


def examine(runs: Path, num_workers: int | None, on_begin: Callable[[str], None]) -> Iterator[Check]:
    """Check the cluster that was joined, without nodes that don't answer; `on_begin` receives what is checked next.

    Without `num_workers` there is one per GPU, as in a run, or two without GPUs.
    """
    on_begin("the machine of every node")
    nodes = alive_nodes()
    answered, refused = ask(nodes, inspect_machine)
    if refused:
        cure = "Install the same icalib there as here, check whether the node is overloaded, or remove it."
        yield Check("nodes", "fail", by_node(refused), cure)
    else:
        yield Check("nodes", "ok", by_node({node.name: f"{node.cpus:g} CPUs, {node.gpus} GPUs" for node in nodes}))
    nodes = [node for node in nodes if node.name in answered]
    if not nodes:
        return
    yield check_versions({"this process": versions(), **{node: found for node, (found, _) in answered.items()}})
    yield check_token([node for node in nodes if not answered[node.name][1]])
    on_begin("storage from every node")
    folder = runs / f"doctor-{secrets.token_hex(4)}"
    gpus = sum(node.gpus for node in nodes)
    resources = Resources(num_workers or gpus or 2, gpus > 0, 1, num_scorers=2)
    # A head where nothing is scheduled needs no storage; on clouds it has no rights to it.
    busy = [node for node in nodes if node.cpus or node.gpus]
    needed = [check_storage(busy, folder), check_workers(resources)]
    yield from needed
    if any(check.status != "ok" for check in needed):
        yield Check("training step", "warn", "skipped", "Do first what storage and workers need.")
        return
    on_begin(f"training and scoring by {resources.num_workers} workers")
    yield from _rehearse(nodes, folder, resources)


def ask(nodes: Sequence[Node], function: Callable[..., R], *arguments: Any) -> tuple[dict[str, R], dict[str, str]]:
    """Call a function on each node, however busy; return the answers, and the errors of those that failed, by name."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    asked: dict[Any, str] = {}
    for node in nodes:
        there = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))
        asked[there.remote(*arguments)] = node.name
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    given: dict[str, R] = {}
    refused: dict[str, str] = {}
    for reference in answered:
        try:
            given[asked[reference]] = ray.get(reference)
        except RayError as error:
            lines = str(getattr(error, "cause", error)).splitlines()
            refused[asked[reference]] = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    for reference in silent:
        ray.cancel(reference, force=True)
        refused[asked[reference]] = f"no answer within {_ANSWER_S:.0f} s"
    return given, refused


def inspect_machine() -> tuple[dict[str, str], bool]:
    """Return the versions here, and whether Ray requires a token."""
    return versions(), os.environ.get("RAY_AUTH_MODE", "").lower() not in ("", "disabled")


def versions() -> dict[str, str]:
    """Return the versions here; icalib's is followed by a digest of its files."""
    folder = Path(__file__).parents[1]
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".j2", ".yaml"))
    code = content_digest({str(path.relative_to(folder)): file_digest(path) for path in files})
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "icalib": f"{__version__} (files {code[:8]})",
    }


def _version(package: str) -> str:
    try:
        return version(package).partition("+")[0]  # torch appends the platform of its build
    except PackageNotFoundError:
        return "missing"


def check_versions(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Check that versions agree; those that differ are named with their nodes."""
    packages = next(iter(found.values()))
    by_package = {name: {node: installed[name] for node, installed in found.items()} for name in packages}
    if different := {name: values for name, values in by_package.items() if len(set(values.values())) > 1}:
        return Check(
            "versions",
            "fail",
            "; ".join(f"{name} is {by_node(values).replace('; ', ', ')}" for name, values in different.items()),
            "Use the same image on all nodes, or install with the same constraints file and restart Ray there. "
            "`icalib submit` uploads icalib's own code.",
        )
    return Check("versions", "ok", ", ".join(f"{name} {value}" for name, value in packages.items()))


def check_token(unprotected: Sequence[Node]) -> Check:
    """Check that no node does without a token: then anyone who can reach it can run code on it."""
    if not unprotected:
        return Check("token", "ok", "the cluster requires a token")
    is_local = all(is_loopback(node.address) for node in unprotected)
    who = "any user of this machine" if is_local else "anyone who can reach its ports"
    return Check(
        "token",
        "warn" if is_local else "fail",
        f"the cluster requires no token ({listed([node.name for node in unprotected], 3)}): {who} can run code on it",
        "Run `umask 077; ray get-auth-token --generate` on the head, copy the token to the nodes, and restart Ray "
        "everywhere with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.",
    )


def check_storage(nodes: Sequence[Node], folder: Path) -> Check:
    """Check that every node can write a file to a new folder and read the files of the others."""
    runs, target, writers = location(folder.parent), location(folder), {f"{node.id}.txt": node.name for node in nodes}
    try:
        _, refused = ask(nodes, _write, target)
        if refused:
            cure = (
                f"Make {runs} writable for the user that runs Ray on these nodes (mount it read-write, or give them "
                "the store's credentials), or use another --runs."
            )
            return Check("storage", "fail", by_node(refused), cure)
        unread, refused = ask(nodes, _unreadable, target, list(writers))
    finally:
        ask(nodes, _clear, target)
    for node, files in unread.items():
        if files:
            refused[node] = f"can't read the files of {listed([writers[file] for file in files], 3)}"
    if not refused:
        return Check("storage", "ok", f"{runs} is writable, and the same for every node ({len(writers)})")
    cure = (
        "Set --runs to a folder on a file system that all nodes share and mount at the same path (NFS, Lustre, EFS), "
        "or to an object store, e.g. s3://bucket/runs."
    )
    return Check("storage", "fail", f"{runs}: {by_node(refused)}", cure)


def _write(folder: str) -> None:
    import ray

    path = local_path(folder) / f"{ray.get_runtime_context().get_node_id()}.txt"
    with atomic_write(path) as temporary:
        temporary.write_text(path.name)
    push(path)


def _unreadable(folder: str, files: Sequence[str]) -> list[str]:
    local, deadline = local_path(folder), time.monotonic() + _VISIBLE_S
    while True:
        pull(local)
        left = [name for name in files if not ((path := local / name).is_file() and path.read_text() == name)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def _clear(folder: str) -> None:
    remove(local_path(folder))


def check_workers(resources: Resources) -> Check:
    """Check that the training workers fit on the cluster, and that enough of it is idle now."""
    import ray

    wanted, kind = resources.num_workers, "GPU" if resources.use_gpu else "CPU"
    room, idle = room_for_workers(resources), int(ray.available_resources().get(kind, 0))
    if room < wanted:
        cure = f"Add nodes, or use --workers {room}." if room else f"Add nodes with {kind}s."
        return Check("workers", "fail", f"{wanted} workers requested, and the nodes have room for {room}", cure)
    if idle < wanted:
        cure = "Wait for the jobs that use them (`icalib jobs`), or stop those jobs; then run this command again."
        return Check("workers", "warn", f"{wanted} workers fit, but only {idle} {kind}s are idle now", cure)
    return Check("workers", "ok", f"{wanted} fit, one {kind} each; room for {room}")


def _rehearse(nodes: Sequence[Node], folder: Path, resources: Resources) -> Iterator[Check]:
    load_deepspeed()  # before transformers imports it with its start-up output
    try:
        training, scoring = tiny_jobs(folder, resources.num_workers)
        ask(nodes, _unreadable, location(folder), [])  # fetches the jobs' files
        error = error_of(lambda: train(training, folder / "training", resources, "training", ignore))
        if error:
            yield Check(
                "training step",
                "fail",
                error,
                "If the message does not explain it: a node's torch must be built for its driver (nvidia-smi shows its "
                "CUDA version); workers must reach each other on any port (check firewalls and security groups); on "
                "nodes with several network interfaces set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
            )
            return
        done = read_json(folder / "training" / "result.json")
        updates = f"{done['updates']} updates by {done['world_size']} workers ({done['device']})"
        yield Check("training step", "ok", updates)
        error = error_of(lambda: map_shards(scoring, folder / "scores", resources, "scoring", ignore))
        if error:
            yield Check("scored shards", "fail", error, "See the message; the task's output is in the node's Ray logs.")
        else:
            yield Check("scored shards", "ok", f"{len(scoring.shards())}")
    finally:
        ask(nodes, _clear, location(folder))


def error_of(action: Callable[[], None]) -> str:
    """Return the error of an action in one line, or an empty string if it succeeds in time."""
    errors = [f"did not finish within {_TRAINED_S:.0f} s"]

    def attempt() -> None:
        try:
            action()
            errors.clear()
        except Exception as error:  # any defect of a machine is to be reported as a failed check
            name = "" if isinstance(error, IcalibError | OSError) else f"{type(error).__name__}: "
            errors[:] = [" ".join(f"{name}{error}".split())]

    thread = threading.Thread(target=attempt, daemon=True)  # workers wait for each other for up to half an hour
    thread.start()
    thread.join(_TRAINED_S)
    return "".join(errors)


def by_node(found: Mapping[str, str]) -> str:
    """Return the findings with their nodes in one line; nodes with the same finding are listed together."""
    nodes: dict[str, list[str]] = {}
    for node, text in found.items():
        nodes.setdefault(text, []).append(node)
    return "; ".join(f"{text} on {listed(names, 3)}" for text, names in nodes.items())
