"""Job that trains a cross-encoder to give the probabilities of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor
from typing_extensions import override

from icalib.core.job import Artifact
from icalib.core.parquet import read_parquet
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import Batch
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker, start_weights
from icalib.training.examples import Example, PairLabels
from icalib.training.job import Training, TrainingJob
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings
from icalib.training.validation import PlainValidation, validation_rows

TARGET_SCHEMA = pa.schema([("pool_id", pa.string()), ("candidate", pa.int32()), ("prob", pa.float64())])
"""The teacher's probability of each pair, the pairs of a pool together and in the order of its candidates."""

Targets = Mapping[int, npt.NDArray[np.float64]]
"""The teacher's probabilities of a pool's candidates, by the pool's row."""


class DistilJob(TrainingJob):
    """Trains a ranker on a teacher's probabilities of all training pools; labels only choose the best epoch."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 1  # validation has pools without a right candidate

    ranker: RankerConfig
    training: TrainingSettings
    selection: Selection
    train_tokens: Artifact
    validation_tokens: Artifact
    targets: Artifact
    """Parquet file of TARGET_SCHEMA."""
    start: Artifact | None = None
    """Checkpoint with the initial weights of the encoder; None starts from the backbone."""
    seed: int

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.training, self.seed

    @override
    def build(self, device: torch.device) -> Training:
        ranker = Ranker(self.ranker)
        if self.start is not None:
            start_weights(ranker, self.start.path)
        store, held_out = TokenStore(self.train_tokens.path), TokenStore(self.validation_tokens.path)
        targets = read_targets(self.targets.path, store)
        curriculum = DistilCurriculum(
            [_pairs(row, len(probs)) for row, probs in targets.items()],
            store,
            ranker.layout,
            BinaryCrossEntropy.Config().build(),
            self.training.model_copy(update={"train_negatives": None}),
            num_intents=0,
            seed=self.seed,
            targets=targets,
        )
        rows = validation_rows(held_out, self.selection)
        return Training(ranker, curriculum, PlainValidation(held_out, rows, self.training, device))


@dataclass(kw_only=True)
class DistilCurriculum(AnswerCurriculum):
    """Batches of all pairs in the plain view, whose labels are a teacher's probabilities."""

    targets: Targets

    @override
    def inputs(self, examples: Sequence[Example], device: torch.device) -> tuple[Batch, Tensor]:
        """Return encoder inputs and the teacher's probabilities [B, 1]."""
        batch, _ = super().inputs(examples, device)
        probs = [self.targets[one.labels.row][int(one.labels.candidates[one.position])] for one in examples]
        return batch, to_device(torch.tensor(probs, dtype=torch.float32)[:, None], device)


def read_targets(path: Path, store: TokenStore) -> dict[int, npt.NDArray[np.float64]]:
    """Read a teacher's probabilities (TARGET_SCHEMA), by the row of the pool in the store."""
    table = read_parquet(path)
    rows = {str(name): row for row, name in enumerate(store.column("pool_id"))}
    names = np.asarray(table["pool_id"].to_pylist(), dtype=object)
    starts = np.flatnonzero(np.append([True], names[1:] != names[:-1]))
    parts = np.split(table["prob"].to_numpy(), starts[1:])
    return {rows[str(names[start])]: probs for start, probs in zip(starts, parts, strict=True)}


def _pairs(row: int, num_candidates: int) -> PairLabels:
    """Return the pairs of a pool in the plain view; their labels are not read."""
    nothing = np.zeros(num_candidates, np.int64)
    return PairLabels(row, np.arange(num_candidates), nothing, nothing.astype(np.bool_))
