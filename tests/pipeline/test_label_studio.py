"""A batch through a real Label Studio on this machine: imported, labelled by its API, exported and imported back.

LABEL_STUDIO is the path of its executable, in an environment of its own: `pip install label-studio`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.annotators import choices
from helpers.pool_folders import read_pools

from icalib import label_import, label_next
from icalib.labelling.annotations import read_annotations

EXECUTABLE = os.environ.get("LABEL_STUDIO")
TOKEN = "0123456789abcdef0123456789abcdef01234567"

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(EXECUTABLE is None, reason="LABEL_STUDIO is not set")]


@pytest.fixture
def label_studio(tmp_path: Path) -> Iterator[str]:
    """The address of a server, which stops with the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"COLLECT_ANALYTICS": "0", "LATEST_VERSION_CHECK": "0", "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true"}
    environment = {**os.environ, **settings, "LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path / "label-studio")}
    environment.pop("PYTHONPATH", None)
    user = ["--username", "ann@example.org", "--password", "of-this-test-only", "--user-token", TOKEN]
    command = [str(EXECUTABLE), "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port), *user]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def call(address: str, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/{path}", data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_labels_of_label_studio_come_back(label_studio: str, tiny_pools: Path, tmp_path: Path) -> None:
    batch = label_next(data=tiny_pools, out=tmp_path / "batch.json", number=5)
    assert batch.config is not None
    project = call(label_studio, "POST", "projects", {"title": "labels", "label_config": batch.config.read_text()})[
        "id"
    ]
    call(label_studio, "POST", f"projects/{project}/import", json.loads(batch.path.read_text()))
    tasks = call(label_studio, "GET", f"tasks?project={project}")["tasks"]
    tasks.sort(key=lambda task: batch.pool_ids.index(task["data"]["pool_id"]))
    right = [[2], [0, 3], [], [1]]
    for task, indices in zip(tasks, right, strict=False):
        result = choices(task, indices, {1: ["original_question"]})
        call(label_studio, "POST", f"tasks/{task['id']}/annotations/", {"result": result})
    call(label_studio, "POST", f"tasks/{tasks[4]['id']}/annotations/", {"result": [], "was_cancelled": True})
    export = call(label_studio, "GET", f"projects/{project}/export?exportType=JSON&download_all_tasks=true")
    (tmp_path / "export.json").write_text(json.dumps(export))
    found = label_import(tmp_path / "export.json", tiny_pools, tmp_path / "labelled")
    assert (found.num_annotated, found.unfinished) == (4, batch.pool_ids[4:])
    pools = {pool.pool_id: pool for pool in read_pools(tmp_path / "labelled", "train")}
    assert [pools[pool_id].right for pool_id in batch.pool_ids[:4]] == [tuple(indices) for indices in right]
    assert pools[batch.pool_ids[0]].context[0].intents == ("original_question",)
    assert all(annotation.when is not None for annotation in read_annotations(tmp_path / "labelled"))
