"""Scoring with a stock reranker."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pyarrow.parquet as pq
import torch
from pydantic import Field
from typing_extensions import override

from icalib.core.files import atomic_write
from icalib.core.job import Artifact, ByContent, ShardedJob
from icalib.data.pools import as_pools, read_column, read_rows
from icalib.data.schema import Split
from icalib.data.selection import Rows, Selection
from icalib.encoders.off_the_shelf import StockRanker, model_digest
from icalib.scoring.untrained import untrained_table


class ExternalScoreJob(ShardedJob):
    """Scores a split's pools with a stock cross-encoder or bi-encoder, in shards."""

    verb: ClassVar[str] = "scoring"
    version: ClassVar[int] = 2  # scored by sentence-transformers

    data: Artifact
    """Pool folder."""
    split: Split
    selection: Selection
    model: Annotated[str, ByContent(model_digest)]
    """Folder or hub name."""
    pools_per_shard: int = Field(default=64, ge=1)

    @override
    def shards(self) -> list[Rows]:
        rows = self.selection.rows(self.split, "all", read_column(self.data.path, self.split, "label_order"))
        return [rows[start : start + self.pools_per_shard] for start in range(0, len(rows), self.pools_per_shard)]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"scores-{index:06d}.parquet"

    @override
    def compute_shard(self, index: int, shard: Rows, folder: Path, device: torch.device) -> None:
        pools = list(as_pools(read_rows(self.data.path, self.split, shard)))
        contexts = [[utterance.text for utterance in pool.context] for pool in pools]
        scores = _ranker(self.model, model_digest(self.model), device).scores(
            contexts, [pool.candidates for pool in pools]
        )
        with atomic_write(self.shard_path(folder, index)) as temporary:
            start = index * self.pools_per_shard
            pq.write_table(untrained_table(pools, np.concatenate(scores), range(start, start + len(pools))), temporary)


@lru_cache(maxsize=1)  # workers are reused for many shards
def _ranker(name: str, digest: str, device: torch.device) -> StockRanker:
    """Load the model, again if the content of its folder has changed."""
    return StockRanker(name, device)
