"""Job that scores pools of a split in shards."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.files import whole_file
from icalib.core.job import Artifact, ShardedJob
from icalib.core.parquet import read_parquet
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Part, Rows, Selection
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker, load_for_scoring
from icalib.scoring.gain import IntentChoice
from icalib.scoring.scorer import ScoringContext, score_pools
from icalib.uncertainty.estimator import AbstractEstimator


class ScoreJob(ShardedJob):
    """Scores a part of a split in shards."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 4  # recurring texts are encoded once, in other batches
    verb: ClassVar[str] = "scoring"
    memory_advice: ClassVar[str] = "Lower `scoring.max_tokens_per_batch`."

    model: Artifact
    """Folder of the checkpoint."""
    tokens: Artifact
    selection: Selection
    split: Split
    part: Part
    sample: int | None = None
    """Number of pools to score, drawn at random by `seed`; None scores all."""
    estimator: SerializeAsAny[AbstractEstimator.Config]
    with_intents: bool
    intent_choice: IntentChoice = IntentChoice()
    precision: Precision
    max_tokens_per_batch: int
    pools_per_shard: int
    seed: int

    def shards(self) -> list[Rows]:
        """Return the rows of each shard."""
        rows = self.selection.rows(self.split, self.part, TokenStore(self.tokens.path).column("label_order"))
        if self.sample is not None and self.sample < len(rows):
            rng = np.random.default_rng(child_seed(self.seed, "sample", self.split, self.part))
            rows = np.sort(rng.choice(rows, self.sample, replace=False))
        return [rows[start : start + self.pools_per_shard] for start in range(0, len(rows), self.pools_per_shard)]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"scores-{index:06d}.parquet"

    def shared_files(self, folder: Path, index: int) -> Sequence[Path]:
        """Return the files of a shard; intents come before the scores, whose presence marks the shard as complete."""
        return [_intents_path(self.shard_path(folder, index)), self.shard_path(folder, index)]

    @override
    def compute_shard(self, index: int, shard: Rows, folder: Path, device: torch.device) -> None:
        scores, intents = score_pools(
            _context(self, device),
            TokenStore(self.tokens.path),
            shard.tolist(),
            with_intents=self.with_intents,
            seed=child_seed(self.seed, "shard", self.split, self.part, index),
        )
        path = self.shard_path(folder, index)
        if intents is not None:
            with whole_file(_intents_path(path)) as temporary:
                pq.write_table(intents, temporary)
        with whole_file(path) as temporary:
            pq.write_table(scores, temporary)
        _return_free_memory()


@dataclass(frozen=True)
class Shards:
    """A folder of scored shards: `scores-<n>.parquet`, and with intents also `intents-<n>.parquet`."""

    path: Path

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Iterate over the shards (SCORE_SCHEMA and SHARD_INTENT_SCHEMA), with one shard in memory at a time."""
        for path in sorted(self.path.glob("scores-*.parquet")):
            intents = _intents_path(path)
            yield read_parquet(path), read_parquet(intents) if intents.is_file() else None


def _intents_path(scores: Path) -> Path:
    return scores.with_name(scores.name.replace("scores-", "intents-"))


def _return_free_memory() -> None:
    """Return free heap memory to the operating system.

    Batches have many different shapes, which fragment glibc's heap, so it would grow from shard to shard.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


_loaded: dict[tuple[Artifact, Precision, str], Ranker] = {}


def _context(job: ScoreJob, device: torch.device) -> ScoringContext:
    key = (job.model, job.precision, str(device))
    if key not in _loaded:  # one model per process; workers are reused for many shards
        _loaded.clear()
        _loaded[key] = load_for_scoring(job.model.path, job.precision, device)
    ranker = _loaded[key]
    return ScoringContext(
        ranker=ranker,
        layout=ranker.layout,
        estimator=job.estimator.build(),
        device=device,
        precision=job.precision,
        max_tokens=job.max_tokens_per_batch,
        intent_choice=job.intent_choice,
    )
