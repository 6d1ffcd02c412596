"""Who may use the cluster, and whom it tells."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence

from icalib.core.check import Check, by_node, listed
from icalib.distributed.doctor.nodes import Node, ask, refusal

_VARIABLES = ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED")


def check_security(nodes: Sequence[Node]) -> list[Check]:
    """Token authentication and telemetry."""
    answers = ask(nodes, environment)
    refused = refusal("token", answers, "See the message.")
    return [refused] if refused else [judge_token(nodes, answers.given), judge_telemetry(answers.given)]


def environment() -> dict[str, str]:
    """The node's variables in question; a node hands its own on to its workers."""
    return {name: os.environ.get(name, "") for name in _VARIABLES}


def judge_token(nodes: Sequence[Node], found: Mapping[str, Mapping[str, str]]) -> Check:
    """Whoever reaches a cluster without a token runs what he likes on it."""
    open_to_all = [node for node, has in found.items() if has["RAY_AUTH_MODE"].lower() in ("", "disabled")]
    if not open_to_all:
        return Check("token", "ok", "the cluster asks for a token")
    if all(ipaddress.ip_address(node.address).is_loopback for node in nodes):
        return Check(
            "token",
            "warn",
            "the cluster listens on loopback only, but asks nobody on this machine for a token",
            "Set RAY_AUTH_MODE=token before Ray starts, unless you alone use this machine.",
        )
    return Check(
        "token",
        "fail",
        f"the cluster asks nobody for a token ({listed(open_to_all)}): whoever reaches its ports runs code on it",
        "Run `ray get-auth-token --generate` on the head, copy the token to the nodes, and restart Ray everywhere "
        "with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.",
    )


def judge_telemetry(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Ray reports usage unless told not to."""
    sending = {node: "usage reports are on" for node, has in found.items() if has["RAY_USAGE_STATS_ENABLED"] != "0"}
    if sending:
        cure = "Start Ray with RAY_USAGE_STATS_ENABLED=0 on every node."
        return Check("telemetry", "warn", by_node(sending), cure)
    return Check("telemetry", "ok", "off")
