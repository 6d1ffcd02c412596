"""A cluster of several nodes on one machine, whose nodes can be killed; and tasks that say where they ran."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from distributed.drivers import wait_for

from icalib.core.files import write_json
from icalib.distributed import session
from icalib.distributed.executor import _compute_shards

MEMORY = 100 * 2**20


class Nodes:
    """A head without cores, where this process is the driver, and other nodes as the tests want them."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False},
        )
        self._nodes: dict[str, tuple[Any, Mapping[str, int]]] = {}
        session.start(self.address)

    @property
    def address(self) -> str:
        return self._cluster.address

    @property
    def ids(self) -> set[str]:
        return set(self._nodes)

    def are(self, *wanted: Mapping[str, int]) -> list[str]:
        """Have these nodes and no others; their ids, in order. Such as are there already stay: a start takes long."""
        there = list(self._nodes.items())
        kept: list[str | None] = []
        for resources in wanted:
            alike = next((name for name, (_, has) in there if has == resources and name not in kept), None)
            kept.append(alike)
        for name in self.ids.difference(kept):
            self.kill(name)
        ids = [name or self._add(resources) for name, resources in zip(kept, wanted, strict=True)]
        self._cluster.wait_for_nodes(timeout=120)  # until the dead are known to be dead
        return ids

    def _add(self, resources: Mapping[str, int]) -> str:
        node = self._cluster.add_node(object_store_memory=MEMORY, **resources)
        self._nodes[node.node_id] = node, resources
        return node.node_id

    def kill(self, name: str) -> None:
        """SIGKILL to the node's processes."""
        node, _ = self._nodes.pop(name)
        self._cluster.remove_node(node, allow_graceful=False)

    @contextmanager
    def one_dies(self, which: Callable[[], str | None]) -> Generator[list[str], None, None]:
        """Meanwhile kill the node that `which` names as soon as it names one; the list holds its id then."""
        killed: list[str] = []
        over = threading.Event()

        def moment() -> bool:
            name = which()
            if name is not None:
                self.kill(name)
                killed.append(name)
            return name is not None

        thread = threading.Thread(target=lambda: wait_for(moment, lambda: not over.is_set()))
        thread.start()
        try:
            yield killed
        finally:
            over.set()
            thread.join()

    def shutdown(self) -> None:
        session.stop()
        self._cluster.shutdown()


@contextmanager
def cluster_of_its_own() -> Generator[Nodes, None, None]:
    """A cluster; a local Ray of other tests makes way for it."""
    for name, value in session.LOCAL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray  # reads them

    local = ray.is_initialized()
    session.stop()
    with pytest.MonkeyPatch.context() as environment:
        folder = tempfile.mkdtemp(prefix="nodes-")  # short: Ray's socket names have little room
        environment.setenv("RAY_TMPDIR", folder)  # nobody else on this machine shall join it
        cluster = Nodes()
        yield cluster
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    if local:
        session.start(num_cpus=2)


def here() -> str:
    """The node of this process."""
    import ray

    return ray.get_runtime_context().get_node_id()


def where(_: object) -> str:
    """The node where an item was mapped; slow enough for the next item to need another core."""
    time.sleep(1)
    return here()


class Chain:
    """A posterior's task that tells its node and its number of GPUs."""

    def __call__(self) -> tuple[str, int]:
        import ray

        return where(None), len(ray.get_gpu_ids())


def read_trace(path: Path) -> list[list[str]]:
    """Lines of a node and what it did, in order; none yet is fine."""
    return [line.split() for line in path.read_text().splitlines()] if path.is_file() else []


def trace_worker(config: dict[str, Any]) -> None:
    """A training worker that says where it is, and no more."""
    import ray.train

    context = ray.train.get_context()
    if context.get_world_rank() == 0:
        write_json(Path(config["folder"], "result.json"), {"world_size": context.get_world_size()})
    with Path(config["folder"], "trace").open("a") as file:
        file.write(f"{here()} 0\n")


def compute_traced_shards(fields: str, described: Sequence[tuple[int, Any]], folder: str) -> None:
    """Compute shards when as many nodes as `folder`/meet says have begun with one; `folder`/trace tells where."""
    trace, meet = Path(folder) / "trace", Path(folder) / "meet"
    for number, shard in described:
        with trace.open("a") as file:
            file.write(f"{here()} {number} {os.getpid()}\n")
        wait_for(lambda: len({node for node, *_ in read_trace(trace)}) >= int(meet.read_text()), lambda: True)
        with patch("icalib.distributed.executor._device", lambda _: torch.device("cpu")):  # nodes only say to have GPUs
            _compute_shards(fields, [(number, shard)], folder)
