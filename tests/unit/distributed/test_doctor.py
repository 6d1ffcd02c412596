"""The checks that follow from given answers of nodes; no Ray is started."""

from __future__ import annotations

import pytest

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
