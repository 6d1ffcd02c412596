"""Scoring jobs: pools of a split, cut into shards."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import SerializeAsAny

from icalib.core.component import Settings
from icalib.core.files import whole_file
from icalib.core.paths import Stored
from icalib.core.seeding import child_seed
from icalib.core.stage_cache import Stage
from icalib.data.encoding import TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Part, Rows, Selection
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker, load_ranker
from icalib.scoring.scorer import ScoringContext, score_pools
from icalib.uncertainty.estimator import AbstractEstimator


def shard_rows(job: ScoreJob) -> list[Rows]:
    """The rows of each shard of a scoring job."""
    rows = job.selection.rows(job.split, job.part, TokenStore(job.tokens).column("label_order"))
    if job.sample is not None and job.sample < len(rows):
        rng = np.random.default_rng(child_seed(job.seed, "sample", job.split, job.part))
        rows = np.sort(rng.choice(rows, job.sample, replace=False))
    return [rows[start : start + job.pools_per_shard] for start in range(0, len(rows), job.pools_per_shard)]


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard's scores lie; the file's presence says that the shard is whole."""
    return folder / f"scores-{number:06d}.parquet"


def shard_intents_path(folder: Path, number: int) -> Path:
    """Where a shard's predicted intents lie, if there are any; they are there before its scores."""
    return folder / f"intents-{number:06d}.parquet"


def score_shard(job: ScoreJob, number: int, rows: Sequence[int], folder: Path, device: torch.device) -> None:
    """Score one shard and write it: intents first, then the scores whose presence completes it."""
    context = _context(job, device)
    scores, intents = score_pools(
        context,
        TokenStore(job.tokens),
        rows,
        with_intents=job.with_intents,
        seed=child_seed(job.seed, "shard", job.split, job.part, number),
    )
    if intents is not None:
        with whole_file(shard_intents_path(folder, number)) as temporary:
            pq.write_table(intents, temporary)
    with whole_file(shard_path(folder, number)) as temporary:
        pq.write_table(scores, temporary)
    _return_free_memory()


def _return_free_memory() -> None:
    """Every batch shape is a new size to malloc; glibc's heap would only grow, shard after shard."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


_loaded: dict[tuple[str, str], Ranker] = {}


def _context(job: ScoreJob, device: torch.device) -> ScoringContext:
    key = (str(job.checkpoint), str(device))
    if key not in _loaded:  # one model a process; workers live on from shard to shard
        _loaded.clear()
        _loaded[key] = load_ranker(job.checkpoint).to(device).eval()
    ranker = _loaded[key]
    return ScoringContext(
        ranker=ranker,
        layout=ranker.layout,
        estimator=job.estimator.build(),
        device=device,
        precision=job.precision,
        max_tokens=job.max_tokens_per_batch,
    )


class ScoreJob(Settings):
    """One scoring run over a part of a split, cut into shards."""

    checkpoint: Stored
    tokens: Stored
    selection: Selection
    split: Split
    part: Part
    sample: int | None = None
    """Score so many pools of the part, drawn by seed; None scores all."""
    estimator: SerializeAsAny[AbstractEstimator.Config]
    with_intents: bool
    precision: Precision
    max_tokens_per_batch: int
    pools_per_shard: int
    seed: int


@dataclass(frozen=True)
class Shards:
    """A folder of scored shards: `scores-<n>.parquet` and, with intents, `intents-<n>.parquet`."""

    stage: Stage

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """SCORE_SCHEMA and SHARD_INTENT_SCHEMA, one shard after the other: memory doesn't grow with the pool."""
        for path in sorted(self.stage.path.glob("scores-*.parquet")):
            intents = path.with_name(path.name.replace("scores-", "intents-"))
            yield pq.read_table(path), pq.read_table(intents) if intents.is_file() else None
