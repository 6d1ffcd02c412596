"""Pools of folders, pools made of a few texts, and folders that were changed by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icalib.core.contents import facts_of
from icalib.core.files import content_digest, read_json, write_json
from icalib.data.pools import as_pools, iter_pools, row_digest
from icalib.data.schema import POOLS_FILE, SPLITS, Pool, PoolSet, Split


def read_pools(folder: Path, *splits: Split) -> list[Pool]:
    """Return the pools of some splits, or of all."""
    return [pool for split in splits or SPLITS for batch in iter_pools(folder, split) for pool in as_pools(batch)]


def made_pool(candidates: Sequence[str], *context: str, name: str = "p", label: int = 0, **fields: Any) -> Pool:
    """Return a training pool whose context are texts of the user; the part of its name before a slash is a dialogue."""
    given = {"pool_id": name, "dialog_id": name.partition("/")[0], "split": "train", "label": label, **fields}
    turns = [{"speaker": "user", "text": text} for text in context or ("hello",)]
    return Pool.model_validate({**given, "candidates": candidates, "context": turns})


def seal(folder: Path) -> None:
    """Record the files of a pool folder as they are now."""
    pool_set = PoolSet.model_validate(read_json(folder / POOLS_FILE))
    now = {"digest": pools_digest(folder), "files": {name: facts_of(folder / name) for name in pool_set.files}}
    write_json(folder / POOLS_FILE, pool_set.model_copy(update=now).sealed().model_dump())


def pools_digest(folder: Path) -> str:
    """Return the digest that a pool set of these splits has."""
    digests: dict[str, str] = {}
    for split in SPLITS:
        rows = (row_digest(row) for batch in iter_pools(folder, split) for row in batch.to_pylist())
        digests[split] = hashlib.sha256(b"".join(rows)).hexdigest()
    return content_digest(digests)
