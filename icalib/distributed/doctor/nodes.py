"""Calling a function on every node of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from icalib.core.check import Check, by_node

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
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    asked = {
        node.name: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(
            *arguments
        )
        for node in nodes
    }
    answered, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=TIMEOUT_S)
    answers = Answers[R]()
    for name, reference in asked.items():
        if reference in answered:
            _collect(answers, name, reference)
        else:
            ray.cancel(reference, force=True)
            answers.refused[name] = f"no answer within {TIMEOUT_S:.0f} s"
    return answers


def _collect(answers: Answers[R], name: str, reference: Any) -> None:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        answers.given[name] = ray.get(reference)
    except RayTaskError as error:
        answers.refused[name] = _one_line(error.cause)
    except RayError as error:
        answers.refused[name] = _one_line(error)


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def refusal(name: str, answers: Answers[Any], cure: str) -> Check | None:
    """Return a failing check if a node could not answer, and None if all did."""
    return Check(name, "fail", by_node(answers.refused), cure) if answers.refused else None
