"""The check that every node reads what the others write under --runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from icalib.core.check import Check, by_node, listed
from icalib.core.files import whole_file
from icalib.core.storage import local_path, location, pull, push, remove
from icalib.distributed.doctor.nodes import Node, ask

_NAME = "storage"
_VISIBLE_AFTER_S = 10.0  # network file systems may show other nodes' files with a delay


def check_storage(nodes: Sequence[Node], folder: Path) -> Check:
    """Check that every node can write a file to a new folder and read the files of the others."""
    target, names = location(folder), {node.name: f"{node.id}.txt" for node in nodes}
    written = ask(nodes, write, target, list(names.values()))
    try:
        if written.refused:
            return _unwritable(target, written.refused)
        read = ask(nodes, missing, target, list(names.values()))
        return judge_storage(folder.parent, {file: name for name, file in names.items()}, read.given, read.refused)
    finally:
        ask(nodes, clear, target)


def write(folder: str, files: Sequence[str]) -> None:
    """Write this node's file, which is named after the node's id."""
    import ray

    (own,) = [file for file in files if file.startswith(ray.get_runtime_context().get_node_id())]
    path = local_path(folder) / own
    with whole_file(path) as temporary:
        temporary.write_text(own)
    push(path)


def missing(folder: str, files: Sequence[str]) -> list[str]:
    """Return the files that this node can't read as they were written."""
    local, deadline = local_path(folder), time.monotonic() + _VISIBLE_AFTER_S
    while True:
        pull(local)
        left = [file for file in files if not _is_whole(local / file)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def _is_whole(path: Path) -> bool:
    return path.is_file() and path.read_text() == path.name


def clear(folder: str) -> None:
    """Remove the folder, on storage and in this node's mirror of it."""
    remove(local_path(folder))


def _unwritable(folder: str, refused: Mapping[str, str]) -> Check:
    return Check(
        _NAME,
        "fail",
        by_node(refused),
        f"Make {Path(folder).parent if '://' not in folder else folder.rpartition('/')[0]} writable for the user that "
        "runs Ray on these nodes (mount it read-write, or give them the store's credentials), or use another --runs.",
    )


def judge_storage(
    runs: Path, writers: Mapping[str, str], unread: Mapping[str, Sequence[str]], refused: Mapping[str, str]
) -> Check:
    """Return the check that every node reads the files of all nodes.

    Args:
        runs: the folder that was checked.
        writers: the node that wrote each file.
        unread: the files that each node could not read.
        refused: the errors of nodes that could not read at all.
    """
    target = location(runs)
    unreadable = {
        node: f"files of {listed([writers[file] for file in files])}" for node, files in unread.items() if files
    }
    if refused or unreadable:
        problem = by_node(refused) if refused else f"unreadable {by_node(unreadable)}"
        return Check(
            _NAME,
            "fail",
            f"{target}: {problem}",
            "Set --runs to a folder on a file system that all nodes share and mount at the same path (NFS, Lustre, "
            "EFS), or to an object store, e.g. s3://bucket/runs.",
        )
    number = len(writers)
    shared = "" if number == 1 else f", and each of {number} nodes reads what the others write"
    return Check(_NAME, "ok", f"{target} is writable{shared}")
