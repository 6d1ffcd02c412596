"""The job that computes a part's column of a split's pools, in shards."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.job import Artifact, ShardedJob, kept
from icalib.core.parquet import read_parquet, write_parquet
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.data.folds import Fold
from icalib.data.schema import Split
from icalib.data.selection import Rows, Selection, Subset
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.precision import Precision
from icalib.models.ranker import load_for_scoring
from icalib.parts.intent import LoadedIntent
from icalib.parts.similarity import LoadedSimilarity
from icalib.scoring.column import LoadedPart, column_table
from icalib.scoring.cross import LoadedCross
from icalib.scoring.gain import IntentChoice
from icalib.scoring.scores import intent_shard, intents_path
from icalib.training.pseudo_labelled import soft_labelled_pools
from icalib.uncertainty.estimator import AbstractEstimator

PartName = str
"""One of ORDER."""
ORDER: tuple[PartName, ...] = ("similarity", "intent", "cross")
"""Each part sees those before it, out of fold: cheap ones first."""


class ColumnJob(ShardedJob):
    """Computes a part's column of a part of a split, in shards."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 3  # a small shard's passes are one batch
    verb: ClassVar[str] = "scoring"
    memory_advice: ClassVar[str] = "Lower `scoring.max_tokens_per_batch`."

    part: PartName
    model: Artifact
    """Folder of the part's checkpoint."""
    tokens: Artifact
    selection: Selection
    split: Split
    of: Subset
    soft_labels: Artifact | None = None
    """File of soft labels, whose pools are left out: they were trained on."""
    sample: int | None = None
    """Number of pools, drawn at random by `seed`; None takes all."""
    fold: Fold | None = None
    """Fold of these pools; None takes all."""
    estimator: SerializeAsAny[AbstractEstimator.Config]
    with_intents: bool = False
    """Whether the cross-encoder reads the pairs with intents, too; the other parts' columns don't depend on it."""
    intents: Artifact | None = None
    """Stage of the intent part's column, with the intents that the cross-encoder reads; None: it predicts its own."""
    intent_choice: IntentChoice = IntentChoice()
    precision: Precision
    max_tokens_per_batch: int
    pools_per_shard: int
    seed: int

    @override
    def shards(self) -> list[Rows]:
        """Return the rows of each shard."""
        store = TokenStore(self.tokens.path)
        rows = self.selection.rows(self.split, self.of, store.column("label_order"))
        if self.fold is not None:
            rows = self.fold.rows(store, rows)
        if self.soft_labels is not None:
            is_soft = np.isin(store.column("pool_id")[rows], list(soft_labelled_pools(self.soft_labels.path)))
            rows = rows[~is_soft]
        if self.sample is not None and self.sample < len(rows):
            rng = np.random.default_rng(child_seed(self.seed, "sample", self.split, self.of))
            rows = np.sort(rng.choice(rows, self.sample, replace=False))
        return [rows[start : start + self.pools_per_shard] for start in range(0, len(rows), self.pools_per_shard)]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"column-{index:06d}.parquet"

    @override
    def shared_files(self, folder: Path, index: int) -> Sequence[Path]:
        """Return the files of a shard; intents come before the column, whose presence marks it as complete."""
        return [intents_path(self.shard_path(folder, index)), self.shard_path(folder, index)]

    @override
    def compute_shard(self, index: int, shard: Rows, folder: Path, device: torch.device) -> None:
        pools = list(TokenStore(self.tokens.path).pools(shard.tolist()))
        path = self.shard_path(folder, index)
        known = None
        if self.intents is not None:
            known = read_parquet(intents_path(self.shard_path(self.intents.path, index)))["intents"].to_pylist()
        seed = child_seed(self.seed, "shard", self.split, self.of, index)
        part = _loaded_part(self, device)
        columns, intents = part.columns(pools, seed, with_intents=self.with_intents, known=known)
        if intents is not None and known is None:
            write_parquet(intents_path(path), intent_shard(pools, intents))
        write_parquet(path, column_table(pools, columns))
        _return_free_memory()


def load_part(
    name: PartName,
    folder: Path,
    estimator: AbstractEstimator.Config,
    precision: Precision,
    max_tokens: int,
    choice: IntentChoice,
    device: torch.device,
) -> LoadedPart:
    """Load a part's checkpoint, in evaluation mode."""
    if name == "similarity":
        return LoadedSimilarity.load(folder, estimator, precision, device)
    if name == "intent":
        return LoadedIntent.load(folder, estimator, precision, device, choice)
    ranker = load_for_scoring(folder, precision, device)
    return LoadedCross(ranker, estimator.build(), device, precision, max_tokens, choice)


def _loaded_part(job: ColumnJob, device: torch.device) -> LoadedPart:
    estimator, limit = job.estimator.model_dump_json(), job.max_tokens_per_batch  # a retry may have a lower limit
    key = (job.part, job.model, job.precision, str(device), estimator, limit, job.intent_choice)
    return kept(
        key,
        lambda: load_part(
            job.part, job.model.path, job.estimator, job.precision, job.max_tokens_per_batch, job.intent_choice, device
        ),
    )


def _return_free_memory() -> None:
    """Return free heap memory to the operating system.

    Batches have many different shapes, which fragment glibc's heap, so it would grow from shard to shard.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
