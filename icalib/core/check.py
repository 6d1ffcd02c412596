"""Checks of a machine or cluster, and what is said of many nodes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
_NAMED = 3  # nodes that a message names


@dataclass(frozen=True)
class Check:
    """What a check found.

    Args:
        name: what was looked at.
        status: whether all is well, can be better, or would stop a run.
        found: what there is, in one line.
        cure: what to do; empty where all is well.
    """

    name: str
    status: Status
    found: str
    cure: str = ""


def by_node(found: Mapping[str, str]) -> str:
    """What was found on each node, the nodes that agree together.

    Example:
        >>> by_node({"a": "2 GPUs", "b": "2 GPUs", "c": "none"})
        '2 GPUs on a, b; none on c'
    """
    return "; ".join(f"{text} on {listed(names)}" for text, names in alike(found).items())


def alike(found: Mapping[str, str]) -> dict[str, list[str]]:
    """The nodes of each finding."""
    nodes: dict[str, list[str]] = {}
    for node, text in found.items():
        nodes.setdefault(text, []).append(node)
    return nodes


def listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
