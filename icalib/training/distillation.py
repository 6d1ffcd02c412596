"""Job that trains a cross-encoder to give the probabilities of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import torch
from typing_extensions import override

from icalib.core.job import Artifact
from icalib.core.parquet import read_parquet
from icalib.data.encoding import Lists, TokenStore
from icalib.data.selection import Selection
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.checkpoint import CHECKPOINT_VERSION, RankerConfig
from icalib.models.ranker import Ranker, start_weights
from icalib.training.examples import LabelledPools
from icalib.training.job import Training, TrainingJob
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings
from icalib.training.validation import PlainValidation, validation_rows

TARGET_SCHEMA = pa.schema([("pool_id", pa.string()), ("candidate", pa.int32()), ("prob", pa.float64())])
"""The teacher's probability of each pair, the pairs of a pool together and in the order of its candidates."""


class DistilJob(TrainingJob):
    """Trains a ranker on a teacher's probabilities of all training pools; labels only choose the best epoch."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 2  # word embeddings of tokens that occur

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

    @override
    def build(self, device: torch.device) -> Training:
        ranker = Ranker(self.ranker)
        if self.start is not None:
            start_weights(ranker, self.start.path)
        store, held_out = TokenStore(self.train_tokens.path), TokenStore(self.validation_tokens.path)
        pools, loss = distilled_labels(self.targets.path, store), BinaryCrossEntropy.Config().build()
        settings = self.training.model_copy(update={"train_negatives": None})
        curriculum = AnswerCurriculum(pools, store, ranker.layout, loss, settings, num_intents=0, seed=self.seed)
        rows = validation_rows(held_out, self.selection)
        validation = PlainValidation(held_out, rows, self.training, device)
        token_ids = curriculum.layout.token_ids(store.token_ids(pools.rows_P))
        return Training(ranker, curriculum, validation, token_ids=token_ids)


def distilled_labels(path: Path, store: TokenStore) -> LabelledPools:
    """Return the pairs of a teacher's pools (TARGET_SCHEMA) in the plain view, labelled with its probabilities."""
    table = read_parquet(path)
    rows = store.rows_of(table["pool_id"].chunks)
    names = np.asarray(table["pool_id"].to_pylist(), dtype=object)
    starts = np.flatnonzero(np.append([True], names[1:] != names[:-1]))
    rows_P = np.array([rows[str(name)] for name in names[starts]], np.int64)
    probs = Lists(table["prob"].to_numpy(), np.append(starts, len(names)))
    return LabelledPools.without_intents(rows_P, Lists(probs.positions(), probs.offsets), probs.values)
