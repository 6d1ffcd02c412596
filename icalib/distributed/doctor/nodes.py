"""Asking every node of a cluster the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from icalib.core.check import Check, by_node

R = TypeVar("R")

PATIENCE_S = 180.0
"""How long a node may take to answer: the first answer waits for a new process and its imports."""


@dataclass(frozen=True)
class Node:
    """A node that is alive.

    Args:
        name: its host, and the start of its id, since a machine may hold several nodes.
        address: where other nodes reach it.
        cpus, gpus: what it has according to Ray, busy or not.
    """

    id: str
    name: str
    address: str
    cpus: float
    gpus: int


@dataclass(frozen=True)
class Answers(Generic[R]):
    """What nodes answered, and what was heard of those that couldn't, by the node's name."""

    given: dict[str, R] = field(default_factory=dict[str, R])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def alive_nodes() -> list[Node]:
    """The nodes that are alive, in the order of their names."""
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
    """Call a function once on each node, however busy it is."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    asked = {
        node.name: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(
            *arguments
        )
        for node in nodes
    }
    answered, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=PATIENCE_S)
    answers = Answers[R]()
    for name, reference in asked.items():
        if reference in answered:
            _collect(answers, name, reference)
        else:
            ray.cancel(reference, force=True)
            answers.refused[name] = f"no answer within {PATIENCE_S:.0f} s"
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
    """The failing check of nodes that couldn't answer; None where all did."""
    return Check(name, "fail", by_node(answers.refused), cure) if answers.refused else None
