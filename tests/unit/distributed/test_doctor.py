"""The checks that follow from given answers of nodes; no Ray is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from icalib.core.check import by_node
from icalib.distributed.doctor import rehearsal
from icalib.distributed.doctor.machine import Machine, check_disk, check_gpus, check_token, check_versions, versions
from icalib.distributed.doctor.nodes import Node
from icalib.distributed.doctor.storage import judge_storage

GIB = 2**30
A, B = Node("1", "a", "10.0.0.1", 8, 2), Node("2", "b", "10.0.0.2", 8, 0)
PLAIN = Machine({}, num_gpus=0, gpu_error="", disk_bytes=100 * GIB, needs_token=True)


def test_nodes_that_agree_are_named_together_and_many_are_counted() -> None:
    found = {**dict.fromkeys("abcde", "2 CPUs"), "f": "1 CPU"}
    assert by_node(found) == "2 CPUs on a, b, c and 2 more; 1 CPU on f"


def test_versions_that_differ_are_named_with_their_nodes() -> None:
    same = versions()
    assert check_versions({"here": same, "a": same}).status == "ok"
    check = check_versions({"here": same, "a": same, "b": {**same, "torch": "1.0"}})
    assert check.status == "fail"
    assert check.found == f"torch is {same['torch']} on here, a, 1.0 on b"


@pytest.mark.parametrize(
    ("number", "error", "status", "part"),
    [
        (2, "", "ok", "torch computes on all 2"),
        (1, "", "fail", "Ray counts 2, torch uses 1 on a"),
        (0, "driver too old", "fail", "torch uses 0 (driver too old)"),
        (4, "", "warn", "Ray counts 2, torch uses 4"),
    ],
)
def test_gpus_are_compared_between_ray_and_torch(number: int, error: str, status: str, part: str) -> None:
    check = check_gpus([A, B], {"a": replace(PLAIN, num_gpus=number, gpu_error=error), "b": PLAIN})
    assert check.status == status
    assert part in check.found
    assert bool(check.cure) == (status != "ok")


@pytest.mark.parametrize(("free", "status"), [(100.0, "ok"), (5.0, "warn"), (0.5, "fail")])
def test_the_node_that_is_short_of_disk_is_named(free: float, status: str) -> None:
    check = check_disk({"a": PLAIN, "b": replace(PLAIN, disk_bytes=int(free * GIB))})
    assert check.status == status
    assert (check.found == f"only {free} GiB on b") == (status != "ok")


@pytest.mark.parametrize(
    ("needs", "address", "status"),
    [(True, "10.0.0.1", "ok"), (False, "10.0.0.1", "fail"), (False, "127.0.0.1", "warn")],
)
def test_a_cluster_that_others_can_reach_must_require_a_token(needs: bool, address: str, status: str) -> None:
    node = Node("1", "a", address, 1, 0)
    assert check_token([node], {"a": replace(PLAIN, needs_token=needs)}).status == status


def test_storage_that_is_not_shared_names_the_unreadable_files() -> None:
    writers = {"1.txt": "a", "2.txt": "b"}
    assert judge_storage("/runs", writers, {"a": [], "b": []}, {}).status == "ok"
    check = judge_storage("/runs", writers, {"a": ["2.txt"], "b": ["1.txt"]}, {})
    assert check.status == "fail"
    assert check.found == "/runs: can't read the files of b on a; can't read the files of a on b"
    assert "s3://" in check.cure


def test_any_exception_of_a_rehearsal_becomes_the_finding() -> None:
    def break_down() -> None:
        raise ZeroDivisionError("a driver that\nno one expected")

    assert rehearsal.error_of(break_down) == "ZeroDivisionError: a driver that no one expected"
