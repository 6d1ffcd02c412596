"""Jobs over tiny pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from helpers.artifacts import known
from helpers.tiny_models import BUDGET, ranker_config, token_store

from icalib.core.combination import OWN_OBJECTIVE
from icalib.core.job import Job
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.losses.head_objective import HeadObjective
from icalib.models.checkpoint import RankerConfig
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.settings import TrainingSettings

J = TypeVar("J", bound=Job)


def job_of(kind: type[J], backbone: Path, tokens: Path, *, labelled: float = 1.0, **fields: Any) -> J:
    """A job over the tokens in a folder; what jobs have in common is given, any field may be given another value."""
    common: dict[str, Any] = {
        "backbone": str(backbone),
        "budget": BUDGET,
        "selection": Selection(labelled_fraction=labelled),
        "seed": 1,
        **{f"{split}_tokens": known(tokens / f"{split}.arrow") for split in ("train", "validation")},
        "test_tokens": known(tokens / "validation.arrow"),
    }
    return kind(**{name: value for name, value in common.items() if name in kind.model_fields} | fields)


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


def answer_job(tokens: Path, ranker: RankerConfig, *, labelled: float = 0.2, **fields: Any) -> CrossEncoderJob:
    """One epoch of a ranker over some of `tokens`/train.arrow; any field may be given another value."""
    own = {
        "ranker": ranker,
        "loss": (HeadObjective if OWN_OBJECTIVE in ranker.head.provides() else BinaryCrossEntropy).Config(),
        "training": TrainingSettings(batch_size=8, epochs=1, precision="fp32"),
        "seed": 3,
    }
    return job_of(CrossEncoderJob, Path(), tokens, labelled=labelled, **own | fields)
