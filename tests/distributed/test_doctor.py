"""`icalib doctor` on a healthy machine, and on a folder that can't be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from icalib.distributed.doctor import alive_nodes, check_storage, examine

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_healthy_machine_passes_and_nothing_is_left(local_ray: None, tmp_path: Path) -> None:
    checks = list(examine(tmp_path, 2, lambda what: None))
    found = {check.name: check for check in checks}
    assert [check for check in checks if check.status == "fail"] == []
    assert found["training step"].found.endswith("updates by 2 workers (cpu)")
    assert found["scored shards"].status == "ok"
    assert list(tmp_path.iterdir()) == []


def test_shared_storage_passes_and_what_cannot_be_written_fails(local_ray: None, tmp_path: Path) -> None:
    shared = check_storage(alive_nodes(), tmp_path / "runs" / "nonce")
    assert (shared.status, list((tmp_path / "runs").iterdir())) == ("ok", [])
    blocked = tmp_path / "file"
    blocked.touch()
    check = check_storage(alive_nodes(), blocked / "nonce")
    assert check.status == "fail"
    assert f"Make {blocked} writable" in check.cure
