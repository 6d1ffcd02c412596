"""Scoring jobs over a folder of tokens and a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.artifacts import known

from icalib.data.selection import Selection
from icalib.parts.job import ColumnJob
from icalib.uncertainty.estimator import MCDropout


def score_job(tokens: Path, checkpoint: Path, **values: Any) -> ColumnJob:
    """A job over train.arrow in the folder `tokens`; any field may be given another value."""
    fields: dict[str, Any] = {
        "part": "cross",
        "model": known(checkpoint),
        "tokens": known(tokens / "train.arrow"),
        "selection": Selection(labelled_fraction=0.1),
        "split": "train",
        "of": "unlabelled",
        "estimator": MCDropout.Config(num_passes=2),
        "with_intents": True,
        "precision": "fp32",
        "max_tokens_per_batch": 1024,
        "pools_per_shard": 10,
        "seed": 1,
    }
    return ColumnJob.model_validate(fields | values)
