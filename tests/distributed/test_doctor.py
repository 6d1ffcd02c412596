"""`icalib doctor` on a healthy machine and on clusters that are broken in earnest."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icalib.distributed import session
from icalib.distributed.doctor import (
    Node,
    alive_nodes,
    ask,
    check_storage,
    check_versions,
    examine,
    versions,
)

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_healthy_machine_passes_and_nothing_is_left(local_ray: None, tmp_path: Path) -> None:
    checks = list(examine(tmp_path, 2, lambda what: None))
    found = {check.name: check for check in checks}
    assert [check for check in checks if check.status == "fail"] == []
    assert found["training step"].found.endswith("updates by 2 workers (cpu)")
    assert found["scored shards"].status == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def odd_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two nodes. The second has another torch."""
    for name, value in session.LOCAL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray
    from ray.cluster_utils import Cluster

    local = ray.is_initialized()
    session.stop()
    folder, scratch = tmp_path_factory.mktemp("odd"), tempfile.mkdtemp(prefix="doc-")  # short: sockets lie in there
    small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_TMPDIR", scratch)
        cluster: Any = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        cluster.add_node(
            **small,
            dashboard_agent_listen_port=0,
            env_vars={"PYTHONPATH": os.pathsep.join([str(other_torch(folder)), os.environ["PYTHONPATH"]])},
        )
        session.start(cluster.address)
        yield alive_nodes()
        session.stop()
        cluster.shutdown()
    shutil.rmtree(scratch, ignore_errors=True)
    if local:
        session.start(num_cpus=2)


def other_torch(folder: Path) -> Path:
    """What pip leaves of torch 1.0, to be found before the real one."""
    facts = folder / "site" / "torch-1.0.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    return folder / "site"


def test_a_node_with_another_torch_fails(odd_node: list[Node]) -> None:
    given, refused = ask(odd_node, versions)
    assert refused == {}
    check = check_versions({"this process": versions(), **given})
    assert check.status == "fail"
    assert ("torch is " in check.found, ", 1.0 on " in check.found, "ray is" in check.found) == (True, True, False)


def test_shared_storage_passes_and_what_cannot_be_written_fails(odd_node: list[Node], tmp_path: Path) -> None:
    shared = check_storage(odd_node, tmp_path / "runs" / "nonce")
    assert (shared.status, list((tmp_path / "runs").iterdir())) == ("ok", [])
    blocked = tmp_path / "file"
    blocked.touch()
    check = check_storage(odd_node, blocked / "nonce")
    assert check.status == "fail"
    assert f"Make {blocked} writable" in check.cure
