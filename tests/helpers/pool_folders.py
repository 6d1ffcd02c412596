"""Pool folders that were changed by hand."""

from __future__ import annotations

import hashlib
from pathlib import Path

from icalib.core.contents import facts_of
from icalib.core.files import content_digest, read_json, write_json
from icalib.data.pools import iter_pools, row_digest
from icalib.data.schema import POOLS_FILE, SPLITS, PoolSet


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
