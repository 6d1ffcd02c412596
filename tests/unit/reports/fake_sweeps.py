"""Plausible sweep folders without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pyarrow as pa
from optuna.trial import TrialState, create_trial

from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import PREDICTION_SCHEMA
from icalib.metrics.metric import Direction
from icalib.sweeps.folder import Best, SweepFolder, SweepSettings
from icalib.sweeps.study import open_journal
from icalib.sweeps.sweep import mean_of

HOSTILE = "<script>alert('oom')</script> OutOfMemoryError: a worker used 7.9 GiB of 8 GiB. Use smaller batches."


@dataclass(frozen=True)
class Made:
    """A trial: its settings, validation metrics for each seed, and what became of it."""

    settings: Mapping[str, Any]
    metrics: Sequence[Mapping[str, float]]
    state: TrialState = TrialState.COMPLETE
    error: str | None = None
    margins: Sequence[float] | None = None
    """By how much the right candidate leads in each validation pool of two; None: there are no predictions."""


def write_sweep(root: Path, trials: Sequence[Made], metrics: Mapping[str, Direction] | None = None) -> SweepFolder:
    """A sweep folder with a study and run folders."""
    metrics = metrics or {"R@1": "maximize"}
    folder = SweepFolder(root / "sweep-made-desk-0.05")
    seeds = max((len(made.metrics) for made in trials), default=1)
    folder.write_settings(sweep_settings(metrics=dict(metrics), seeds=seeds))
    study = optuna.create_study(
        study_name=folder.path.name, storage=open_journal(folder.journal_path), directions=list(metrics.values())
    )
    for number, made in enumerate(trials):
        attributes: dict[str, Any] = {"settings": dict(made.settings)} | ({"error": made.error} if made.error else {})
        values = [float(np.mean([seed[name] for seed in made.metrics])) for name in metrics] if made.metrics else None
        complete = made.state == TrialState.COMPLETE
        study.add_trial(create_trial(state=made.state, values=values if complete else None, user_attrs=attributes))
        for seed, found in enumerate(made.metrics, 1):
            _write_run(folder.run_folder(number, seed), seed, found, shared=number > 0)
            if made.margins is not None:
                write_predictions(folder.run_folder(number, seed), made.margins)
    return folder


def finish(folder: SweepFolder, number: int, made: Made) -> None:
    """Make a trial the winner."""
    runs = [folder.run_folder(number, seed) for seed in range(1, len(made.metrics) + 1)]
    spreads = {name: mean_of(runs, "validation", name) for name in made.metrics[0]}
    folder.best_config_path.parent.mkdir()
    folder.best_config_path.write_text("method: icast\nsettings:\n  regime: {}\n", encoding="utf-8")
    folder.write_best(
        Best(
            trial=number,
            params=dict(made.settings),
            validation=spreads,
            test={name: (mean - 0.01, deviation) for name, (mean, deviation) in spreads.items()},
            seeds=len(runs),
        )
    )


def write_predictions(run: RunFolder, margins: Sequence[float]) -> None:
    """Pools of two candidates, of which the right one leads by a margin each."""
    logits = np.array([logit for margin in margins for logit in (margin, 0.0)])
    columns: dict[str, Any] = {
        "pool_id": [f"p{number // 2}" for number in range(len(logits))],
        "candidate": [0, 1] * len(margins),
        "label": [1, 0] * len(margins),
        "view": ["plain"] * len(logits),
        "logit": logits,
        "prob": 1 / (1 + np.exp(-logits)),
        "num_passes": [1] * len(logits),
    }
    zeros = [0.0] * len(logits)
    table = pa.table({name: columns.get(name, zeros) for name in PREDICTION_SCHEMA.names}, schema=PREDICTION_SCHEMA)
    run.write_table("predictions/validation.parquet", table)


def _write_run(run: RunFolder, seed: int, metrics: Mapping[str, float], *, shared: bool) -> None:
    run.path.mkdir(parents=True)
    names = ("teacher", "round-1/student")
    stages = [
        {"name": name, "digest": name, "reused": shared and name == "teacher", "seconds": 30.0, "path": "x"}
        for name in names
    ]
    run.write_json("stages.json", stages)
    facts = {"method": "icast", "data": "pools/desk", "labelled": 0.05, "seed": seed, "seconds": {"total": 70.0}}
    run.write_json("result.json", {**facts, "validation": dict(metrics)})


def sweep_settings(**changes: Any) -> SweepSettings:
    """Settings of a sweep of `made`, with changes."""
    made: dict[str, Any] = {
        "space": "made", "space_digest": "5f0c2a9d11e7b3c4", "method": "icast", "data": Path("pools/desk"),
        "data_digest": "9a3f", "labelled": 0.05, "limit": {"train": 400}, "settings": {"regime.num_rounds": 2},
        "backbone": "minilm", "experiment": "desk", "sampler": "tpe", "pruner": "none", "command": "icalib sweep made",
    }  # fmt: skip
    return SweepSettings.model_validate(made | changes)
