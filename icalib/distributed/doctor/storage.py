"""Whether what one node writes under --runs all others read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from icalib.core.check import Check, by_node, listed
from icalib.core.files import whole_file
from icalib.core.storage import local_path, location, pull, push, remove
from icalib.distributed.doctor.nodes import Node, ask

_NAME = "storage"
_ATTRIBUTES_S = 10.0  # a network file system may show another node's file a little later


def check_storage(nodes: Sequence[Node], folder: Path) -> Check:
    """Every node writes a file into a folder that doesn't exist yet, and reads those of the others."""
    place, names = location(folder), {node.name: f"{node.id}.txt" for node in nodes}
    written = ask(nodes, write, place, list(names.values()))
    try:
        if written.refused:
            return _unwritable(place, written.refused)
        read = ask(nodes, missing, place, list(names.values()))
        return judge_storage(folder.parent, {file: name for name, file in names.items()}, read.given, read.refused)
    finally:
        ask(nodes, clear, place)


def write(place: str, files: Sequence[str]) -> None:
    """Write this node's file; its name is the node's id."""
    import ray

    (own,) = [file for file in files if file.startswith(ray.get_runtime_context().get_node_id())]
    path = local_path(place) / own
    with whole_file(path) as temporary:
        temporary.write_text(own)
    push(path)


def missing(place: str, files: Sequence[str]) -> list[str]:
    """Files that this node can't read as they were written."""
    folder, deadline = local_path(place), time.monotonic() + _ATTRIBUTES_S
    while True:
        pull(folder)
        left = [file for file in files if not _is_whole(folder / file)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def _is_whole(path: Path) -> bool:
    return path.is_file() and path.read_text() == path.name


def clear(place: str) -> None:
    """Leave nothing behind, wherever this node has written it."""
    remove(local_path(place))


def _unwritable(place: str, refused: Mapping[str, str]) -> Check:
    return Check(
        _NAME,
        "fail",
        by_node(refused),
        f"Make {Path(place).parent if '://' not in place else place.rpartition('/')[0]} writable for the user that "
        "runs Ray on these nodes (mount it read-write, or give them the store's credentials), or give another --runs.",
    )


def judge_storage(
    runs: Path, writers: Mapping[str, str], unread: Mapping[str, Sequence[str]], refused: Mapping[str, str]
) -> Check:
    """Who can't read whose file.

    Args:
        runs: the folder in question.
        writers: the node that wrote each file.
        unread: what each node couldn't read.
        refused: what was heard of nodes that failed to read at all.
    """
    place = location(runs)
    blind = {node: f"what {listed([writers[file] for file in files])} wrote" for node, files in unread.items() if files}
    if refused or blind:
        problem = by_node(refused) if refused else f"can't be read: {by_node(blind)}"
        return Check(
            _NAME,
            "fail",
            f"{place}: {problem}",
            "Give --runs a folder on a file system that all nodes share and mount at the same path (NFS, Lustre, EFS), "
            "or a place in an object store, e.g. s3://bucket/runs.",
        )
    number = len(writers)
    shared = "" if number == 1 else f", and each of {number} nodes reads what the others write"
    return Check(_NAME, "ok", f"{place} can be written{shared}")
