"""Folders of scored shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from icalib.core.parquet import read_parquet


@dataclass(frozen=True)
class Shards:
    """A folder of scored shards: `scores-<n>.parquet`, and with intents also `intents-<n>.parquet`."""

    path: Path

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Iterate over the shards (SCORE_SCHEMA and SHARD_INTENT_SCHEMA), with one shard in memory at a time."""
        for path in sorted(self.path.glob("scores-*.parquet")):
            intents = intents_path(path)
            yield read_parquet(path), read_parquet(intents) if intents.is_file() else None


def intents_path(shard: Path) -> Path:
    """Return the file with the predicted intents of a shard of scores or of a column."""
    return shard.with_name(f"intents-{shard.name.partition('-')[2]}")
