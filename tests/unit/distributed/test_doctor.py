"""The checks that follow from given answers of nodes; no Ray is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from icalib.core.check import by_node
from icalib.distributed.doctor.inputs import judge_alike
from icalib.distributed.doctor.machine import Gpus, judge_clocks, judge_free_space, judge_gpus, judge_versions, versions
from icalib.distributed.doctor.nodes import Node
from icalib.distributed.doctor.security import judge_telemetry, judge_token
from icalib.distributed.doctor.storage import judge_storage

GIB = 2**30
A, B = Node("1", "a", "10.0.0.1", 8, 2), Node("2", "b", "10.0.0.2", 8, 0)


def test_nodes_that_agree_are_named_together_and_many_are_counted() -> None:
    found = {**dict.fromkeys("abcde", "2 CPUs"), "f": "1 CPU"}
    assert by_node(found) == "2 CPUs on a, b, c and 2 more; 1 CPU on f"


def test_versions_that_differ_are_named_with_their_nodes() -> None:
    same = versions()
    assert judge_versions({"here": same, "a": same}).status == "ok"
    check = judge_versions({"here": same, "a": same, "b": {**same, "torch": "1.0"}})
    assert check.status == "fail"
    assert check.found == f"torch is {same['torch']} on here, a, 1.0 on b"


@pytest.mark.parametrize(
    ("seen", "status", "part"),
    [
        (Gpus(2, "H200", bf16=True), "ok", "2 × H200 on a, bfloat16"),
        (Gpus(2, "T4"), "warn", "without bfloat16"),
        (Gpus(1, "H200", bf16=True), "fail", "Ray counts 2, torch uses 1 on a"),
        (Gpus(0, error="driver too old"), "fail", "torch uses 0 (driver too old)"),
        (Gpus(4, "H200", bf16=True), "warn", "Ray counts 2, torch uses 4"),
    ],
)
def test_gpus_are_compared_between_ray_and_torch(seen: Gpus, status: str, part: str) -> None:
    check = judge_gpus([A, B], {"a": seen, "b": Gpus(0)})
    assert check.status == status
    assert part in check.found
    assert bool(check.cure) == (status != "ok")


def test_no_gpus_are_ok() -> None:
    assert judge_gpus([B], {"b": Gpus(0)}).status == "ok"


def test_the_node_that_is_short_of_space_is_named() -> None:
    roomy = {"memory": 50 * GIB, "disk": 100 * GIB, "/dev/shm": 10 * GIB}
    assert judge_free_space({"a": roomy}).found == "at least 50 GiB of memory, 100 GiB of disk, 10 GiB of /dev/shm free"
    check = judge_free_space({"a": roomy, "b": {**roomy, "memory": GIB // 2, "disk": 5 * GIB}})
    assert (check.status, check.found) == ("fail", "only 0.5 GiB of memory and 5.0 GiB of disk on b")
    assert "TMPDIR" in check.cure
    docker = judge_free_space({"b": {**roomy, "/dev/shm": 64 * 2**20}})
    assert docker.status == "warn"
    assert "--shm-size" in docker.cure


@pytest.mark.parametrize(("seconds", "status"), [(0.5, "ok"), (30.0, "warn"), (900.0, "fail")])
def test_clocks_that_disagree_are_reported(seconds: float, status: str) -> None:
    check = judge_clocks({"a": 0.0, "b": seconds})
    assert check.status == status
    assert ("b" in check.found) == (status != "ok")


@pytest.mark.parametrize(
    ("mode", "address", "status"),
    [
        ("token", "10.0.0.1", "ok"),
        ("", "10.0.0.1", "fail"),
        ("disabled", "10.0.0.1", "fail"),
        ("", "127.0.0.1", "warn"),
    ],
)
def test_a_cluster_that_others_can_reach_must_require_a_token(mode: str, address: str, status: str) -> None:
    node = Node("1", "a", address, 1, 0)
    assert judge_token([node], {"a": {"RAY_AUTH_MODE": mode}}).status == status


def test_enabled_telemetry_is_reported() -> None:
    found = {"a": {"RAY_USAGE_STATS_ENABLED": "0"}, "b": {"RAY_USAGE_STATS_ENABLED": ""}}
    check = judge_telemetry(found)
    assert (check.status, check.found) == ("warn", "usage reports are enabled on b")


def test_storage_that_is_not_shared_names_the_unreadable_files() -> None:
    writers = {"1.txt": "a", "2.txt": "b"}
    assert judge_storage(Path("/runs"), writers, {"a": [], "b": []}, {}).status == "ok"
    check = judge_storage(Path("/runs"), writers, {"a": ["2.txt"], "b": ["1.txt"]}, {})
    assert check.status == "fail"
    assert check.found == "/runs: unreadable files of b on a; files of a on b"
    assert "s3://" in check.cure


def test_different_files_under_one_name_are_reported() -> None:
    check = judge_alike("data", "/pools", {"a": "1" * 16, "b": "2" * 16}, "Copy.")
    assert (check.status, check.found) == ("fail", "/pools differs: digest 11111111 on a; digest 22222222 on b")
