"""Pool folders that were changed by hand."""

from __future__ import annotations

from pathlib import Path

from icalib.core.contents import facts_of
from icalib.core.files import read_json, write_json
from icalib.data.pools import pools_digest
from icalib.data.schema import POOLS_FILE, PoolSet


def seal(folder: Path) -> None:
    """Record the files of a pool folder as they are now."""
    pool_set = PoolSet.model_validate(read_json(folder / POOLS_FILE))
    now = {"digest": pools_digest(folder), "files": {name: facts_of(folder / name) for name in pool_set.files}}
    write_json(folder / POOLS_FILE, pool_set.model_copy(update=now).sealed().model_dump())
