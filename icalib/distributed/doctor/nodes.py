"""Calling a function on every node of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

R = TypeVar("R")

TIMEOUT_S = 180.0
"""Seconds that a node may take to answer; the first answer includes the start of a process and its imports."""


@dataclass(frozen=True)
class Node:
    """A live node.

    Args:
        id: Ray's id of the node.
        name: its host name and the start of its id, since a machine may run several nodes.
        address: the IP address at which other nodes reach it.
        cpus, gpus: its resources according to Ray, idle or not.
    """

    id: str
    name: str
    address: str
    cpus: float
    gpus: int


@dataclass(frozen=True)
class Answers(Generic[R]):
    """What the nodes returned, and the errors of those that failed, by the node's name."""

    given: dict[str, R] = field(default_factory=dict[str, R])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def alive_nodes() -> list[Node]:
    """Return the live nodes, sorted by name."""
    import ray

    nodes = [
        Node(
            id=node["NodeID"],
            name=f"{node['NodeManagerHostname']} ({node['NodeID'][:6]})",
            address=node["NodeManagerAddress"],
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda node: node.name)


def ask(nodes: Sequence[Node], function: Callable[..., R], *arguments: Any) -> Answers[R]:
    """Call a function once on each node, even if all of its resources are in use."""
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    asked: dict[Any, str] = {}
    for node in nodes:
        there = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))
        asked[there.remote(*arguments)] = node.name
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=TIMEOUT_S)
    answers = Answers[R]()
    for reference in answered:
        try:
            answers.given[asked[reference]] = ray.get(reference)
        except RayError as error:
            answers.refused[asked[reference]] = one_line(error.cause if isinstance(error, RayTaskError) else error)
    for reference in silent:
        ray.cancel(reference, force=True)
        answers.refused[asked[reference]] = f"no answer within {TIMEOUT_S:.0f} s"
    return answers


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
