"""Checks of access to the cluster and of telemetry."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence

from icalib.core.check import Check, by_node, listed
from icalib.distributed.doctor.nodes import Node, ask, refusal
from icalib.distributed.token import too_open

_TOKEN_FILE = "token file"
_VARIABLES = ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED")


def check_security(nodes: Sequence[Node]) -> list[Check]:
    """Check token authentication, the token's file and telemetry."""
    answers = ask(nodes, environment)
    refused = refusal("token", answers, "See the message.")
    if refused:
        return [refused]
    return [judge_token(nodes, answers.given), judge_token_file(answers.given), judge_telemetry(answers.given)]


def environment() -> dict[str, str]:
    """Return the environment variables to check, which workers inherit from their node, and the token's permissions."""
    return {**{name: os.environ.get(name, "") for name in _VARIABLES}, _TOKEN_FILE: too_open(os.environ)}


def judge_token(nodes: Sequence[Node], found: Mapping[str, Mapping[str, str]]) -> Check:
    """Return the check that the cluster requires a token: without one, anyone who can reach it can run code on it."""
    open_to_all = [node for node, variables in found.items() if variables["RAY_AUTH_MODE"].lower() in ("", "disabled")]
    if not open_to_all:
        return Check("token", "ok", "the cluster requires a token")
    if all(ipaddress.ip_address(node.address).is_loopback for node in nodes):
        return Check(
            "token",
            "warn",
            "the cluster listens on loopback only, but does not require a token from other users of this machine",
            "Set RAY_AUTH_MODE=token before Ray starts, unless you are the only user of this machine.",
        )
    return Check(
        "token",
        "fail",
        f"the cluster does not require a token ({listed(open_to_all)}): anyone who can reach its ports can run code on "
        "it",
        "Run `umask 077; ray get-auth-token --generate` on the head, copy the token to the nodes, and restart Ray "
        "everywhere with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.",
    )


def judge_token_file(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Return the check that no other user of a node can read the token."""
    open_files = {node: values[_TOKEN_FILE] for node, values in found.items() if values[_TOKEN_FILE]}
    if open_files:
        cure = "On these nodes: chmod 600 the file, and chmod 700 its folder. If others may have read it, replace it."
        return Check("token file", "warn", by_node(open_files), cure)
    return Check("token file", "ok", "readable by its user only")


def judge_telemetry(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Return the check that usage reports are off; Ray sends them by default."""
    sending = {
        node: "usage reports are enabled"
        for node, variables in found.items()
        if variables["RAY_USAGE_STATS_ENABLED"] != "0"
    }
    if sending:
        cure = "Start Ray with RAY_USAGE_STATS_ENABLED=0 on every node."
        return Check("telemetry", "warn", by_node(sending), cure)
    return Check("telemetry", "ok", "off")
