"""Results of checks of a machine or cluster, and their summary over many nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
_NUM_LISTED = 3  # nodes that a message names


@dataclass(frozen=True)
class Check:
    """The result of a check: what was checked, what was found (one line), and what to do if the status isn't `ok`.

    `warn` is for what could be better, `fail` for what would stop a run.
    """

    name: str
    status: Status
    found: str
    cure: str = ""


def by_node(found: Mapping[str, str]) -> str:
    """Return the findings with their nodes in one line; nodes with the same finding are listed together."""
    return "; ".join(f"{text} on {listed(names)}" for text, names in alike(found).items())


def alike(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the nodes of each finding."""
    nodes: dict[str, list[str]] = {}
    for node, text in found.items():
        nodes.setdefault(text, []).append(node)
    return nodes


def listed(names: list[str]) -> str:
    """Return the first names, and how many more follow.

    Example:
        >>> listed(["a", "b", "c", "d", "e"])
        'a, b, c and 2 more'
    """
    more = len(names) - _NUM_LISTED
    return ", ".join(names[:_NUM_LISTED]) + (f" and {more} more" if more > 0 else "")
