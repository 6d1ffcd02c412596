"""The check that every node reads what the others write under --runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from icalib.core.check import Check, by_node, listed
from icalib.core.files import whole_file
from icalib.core.storage import local_path, location, pull, push, remove
from icalib.distributed.doctor.nodes import Node, ask

_VISIBLE_AFTER_S = 10.0  # network file systems may show other nodes' files with a delay


def check_storage(nodes: Sequence[Node], folder: Path) -> Check:
    """Check that every node can write a file to a new folder and read the files of the others."""
    target, writers = location(folder), {f"{node.id}.txt": node.name for node in nodes}
    written = ask(nodes, write, target)
    try:
        if written.refused:
            cure = (
                f"Make {location(folder.parent)} writable for the user that runs Ray on these nodes (mount it "
                "read-write, or give them the store's credentials), or use another --runs."
            )
            return Check("storage", "fail", by_node(written.refused), cure)
        read = ask(nodes, missing, target, list(writers))
        return judge_storage(location(folder.parent), writers, read.given, read.refused)
    finally:
        ask(nodes, clear, target)


def write(folder: str) -> None:
    """Write this node's file, which is named after the node's id."""
    import ray

    path = local_path(folder) / f"{ray.get_runtime_context().get_node_id()}.txt"
    with whole_file(path) as temporary:
        temporary.write_text(path.name)
    push(path)


def missing(folder: str, files: Sequence[str]) -> list[str]:
    """Return the files that this node can't read as they were written."""
    local, deadline = local_path(folder), time.monotonic() + _VISIBLE_AFTER_S
    while True:
        pull(local)
        left = [name for name in files if not ((path := local / name).is_file() and path.read_text() == name)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def clear(folder: str) -> None:
    """Remove the folder, on storage and in this node's mirror of it."""
    remove(local_path(folder))


def judge_storage(
    runs: str, writers: Mapping[str, str], unread: Mapping[str, Sequence[str]], refused: Mapping[str, str]
) -> Check:
    """Return the check that every node reads the files of all nodes.

    Args:
        runs: the folder that was checked.
        writers: the node that wrote each file.
        unread: the files that each node could not read.
        refused: the errors of nodes that could not read at all.
    """
    unreadable = {
        node: f"can't read the files of {listed([writers[file] for file in files])}"
        for node, files in unread.items()
        if files
    }
    if refused or unreadable:
        return Check(
            "storage",
            "fail",
            f"{runs}: {by_node({**unreadable, **refused})}",
            "Set --runs to a folder on a file system that all nodes share and mount at the same path (NFS, Lustre, "
            "EFS), or to an object store, e.g. s3://bucket/runs.",
        )
    return Check("storage", "ok", f"{runs} is writable, and the same for every node ({len(writers)})")
