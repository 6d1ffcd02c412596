"""Small runs on the tiny backbone, and digests of what they leave."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from icalib.core.component import has_setting, with_settings
from icalib.core.events import Emit, Event, Message, StageFinished, ignore
from icalib.core.run_folder import RunFolder
from icalib.data.schema import Split
from icalib.methods.catalogue import load_method
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import RunContext
from icalib.stages.executor import Executor, LocalExecutor
from icalib.stages.resources import Resources

TRAINING = {
    "epochs": 2,
    "learning_rate": 1e-3,
    "head_learning_rate": 1e-2,
    "train_negatives": 3,
    "precision": "fp32",
    "checkpoint_every": 5,
}
SETTINGS: dict[str, Any] = {
    "encoder.budget": {"max_context_tokens": 60, "max_candidate_tokens": 20},
    "similarity": None,  # other trainings, whose tests are their own
    "intent": None,
    "domain_pretraining.max_windows": 60,
    "domain_pretraining.training.checkpoint_every": 2,
    "regime.training": TRAINING,
    "regime.teacher": TRAINING,
    "regime.student": {**TRAINING, "epochs": 1},
    "regime.rule.scale": "quantile",  # a tiny cross-encoder's probabilities hardly differ
    "regime.rule.gain_threshold": 0.0,
    "regime.rule.positive_threshold": 0.6,
    "regime.rule.negative_threshold": 0.3,
    "regime.rule.calibrated_positive_threshold": 0.4,
    "regime.rule.calibrated_negative_threshold": 0.4,
    "regime.rule.confidence_threshold": 0.0,
    "regime.num_rounds": 1,
    "scoring.precision": "fp32",
    "scoring.pools_per_shard": 8,
}
LIMIT: Mapping[Split, int] = {"validation": 12, "test": 12}
CPU = torch.device("cpu")
ONE_WORKER = Resources(num_workers=1, use_gpu=False, cpus_per_worker=1, num_scorers=2)


def small_settings(
    method: str,
    data: Path,
    backbone: Path,
    *,
    experiment: str = "test",
    limit: Mapping[Split, int] = LIMIT,
    **changes: Any,
) -> RunConfig:
    """Settings of a quick run; those that the method doesn't have are left out, those within a changed one, too."""
    made = load_method(method)
    kept = {path: value for path, value in SETTINGS.items() if not path.startswith(tuple(f"{one}." for one in changes))}
    wanted = {**kept, **changes, "encoder.backbone": str(backbone)}
    return RunConfig(
        method=method,
        data=data,
        labelled=0.3,
        seed=1,
        limit=dict(limit),
        backbone=str(backbone),
        experiment=experiment,
        settings=with_settings(made, {path: value for path, value in wanted.items() if has_setting(made, path)}),
    )


class Silent:
    """Receives every event, shows none."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.stages: dict[str, bool] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self.stages[event.stage] = event.reused
        elif isinstance(event, Message):
            self.messages.append(event.text)


def run_context(runs: Path, emit: Emit = ignore, executor: Executor | None = None) -> RunContext:
    return RunContext(runs=runs, executor=executor or LocalExecutor(CPU, num_threads=1), emit=emit, command="test")


def prediction_digest(run: RunFolder) -> str:
    """Digest of the test predictions' content."""
    return table_digest(run.path / "predictions" / "test.parquet")


def table_digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(repr(pq.read_table(path).to_pydict()).encode())
    return digest.hexdigest()


def outcome_digest(run: RunFolder, *more: str) -> str:
    """Digest of predictions, curves and metrics."""
    names = ("predictions/test.parquet", "predictions/validation.parquet", "training.parquet", "metrics.parquet", *more)
    return table_digest(*(run.path / name for name in names))
