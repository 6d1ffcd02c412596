"""Training jobs over tiny pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.artifacts import known
from helpers.tiny_models import ranker_config, token_store

from icalib.core.combination import OWN_OBJECTIVE
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.losses.head_objective import HeadObjective
from icalib.models.checkpoint import RankerConfig
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.settings import TrainingSettings


def train_job(
    pools: Path,
    backbone: Path,
    folder: Path,
    *,
    loss: AbstractLoss.Config | None = None,
    dropout: float = 0.0,
    **training: Any,
) -> CrossEncoderJob:
    """One epoch over some labelled pools, whose tokens go to `folder`; training settings may be given other values."""
    tokens = token_store(pools, "train", backbone, folder).path
    settings = {
        "epochs": 1,
        "learning_rate": 1e-3,
        "head_learning_rate": 1e-2,
        "train_negatives": 1,
        "precision": "fp32",
    }
    return CrossEncoderJob(
        ranker=ranker_config(backbone, intents=read_pool_set(pools).intents, dropout=dropout),
        loss=loss or BinaryCrossEntropy.Config(),
        training=TrainingSettings.model_validate(settings | training),
        selection=Selection(labelled_fraction=0.5, limit={"train": 24}),
        views_with_intents=True,
        train_tokens=known(tokens),
        validation_tokens=known(tokens),
        seed=3,
    )


def answer_job(tokens: Path, ranker: RankerConfig, **values: Any) -> CrossEncoderJob:
    """One epoch of a ranker over a fifth of `tokens`/train.arrow; any field may be given another value."""
    fields: dict[str, Any] = {
        "ranker": ranker,
        "loss": (HeadObjective if OWN_OBJECTIVE in ranker.head.provides() else BinaryCrossEntropy).Config(),
        "training": TrainingSettings(batch_size=8, epochs=1, precision="fp32"),
        "selection": Selection(labelled_fraction=0.2),
        "train_tokens": known(tokens / "train.arrow"),
        "validation_tokens": known(tokens / "validation.arrow"),
        "seed": 3,
    }
    return CrossEncoderJob(**fields | values)
