"""The checks that follow from given answers of nodes; no Ray is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from icalib.core.check import Check
from icalib.distributed import doctor
from icalib.distributed.doctor import Node, check_token, check_versions, versions


def test_versions_that_differ_are_named_with_their_nodes() -> None:
    same = versions()
    assert check_versions({"here": same, "a": same}).status == "ok"
    check = check_versions({"here": same, "a": same, "b": {**same, "torch": "1.0"}})
    assert check.status == "fail"
    assert check.found == f"torch is {same['torch']} on here, a, 1.0 on b"


@pytest.mark.parametrize(
    ("needs", "address", "status"),
    [(True, "10.0.0.1", "ok"), (False, "10.0.0.1", "fail"), (False, "127.0.0.1", "warn")],
)
def test_a_cluster_that_others_can_reach_must_require_a_token(needs: bool, address: str, status: str) -> None:
    assert check_token([] if needs else [Node("1", "a", address, 1, 0)]).status == status


def test_a_head_where_nothing_runs_needs_no_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cloud's head has no rights to the bucket."""
    head, worker = Node("1", "head", "10.0.0.1", 0, 0), Node("2", "worker", "10.0.0.2", 8, 0)

    def ask(
        nodes: Sequence[Node], function: Callable[..., Any], *arguments: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        if function is doctor.inspect_machine:
            return {node.name: (versions(), True) for node in nodes}, {}
        refused = {node.name: "AccessDenied" for node in nodes if node == head}
        return {node.name: [] for node in nodes if node != head}, refused

    monkeypatch.setattr(doctor, "alive_nodes", lambda: [head, worker])
    monkeypatch.setattr(doctor, "ask", ask)
    monkeypatch.setattr(doctor, "check_workers", lambda resources: Check("workers", "fail", "no Ray here"))
    found = {check.name: check for check in doctor.examine(tmp_path, None, lambda what: None)}
    assert found["storage"].status == "ok"
    assert set(found) == {"nodes", "versions", "token", "storage", "workers", "training step"}
