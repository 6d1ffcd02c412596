"""Small sweeps on the tiny backbone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.runs import ONE_WORKER

from icalib.data.pools import read_pool_set
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import RunContext
from icalib.sweeps.folder import SweepFolder, SweepSettings
from icalib.sweeps.space import Space, load_space
from icalib.sweeps.sweep import RunTrials, SweepPlan, sweep, sweep_folder_of
from icalib.sweeps.trials import sweep_trials

RULES = '''"""Two rules that agree, one that differs, and a backbone that isn't there."""

METHOD = "icast"
METRICS = {"F1": "maximize"}
POINTS = [
    {"regime.rule.positive_threshold": 0.6},
    {"regime.rule.positive_threshold": 0.6000001},
    {"encoder.backbone": "/nowhere"},
    {"regime.rule.positive_threshold": 0.5},
]


def suggest(trial):
    return POINTS[trial.suggest_categorical("point", [0, 1, 2, 3])]


def grid():
    return [{"point": number} for number in range(4)]
'''
RATES = '''"""A rate at which models learn, and two at which they don't."""

METHOD = "bert"
METRICS = {"NLL": "minimize"}
PRUNER = "asha"
RATES = [3e-3, 1e-9, 2e-9]


def suggest(trial):
    rate = RATES[trial.suggest_int("rate", 0, 2)]
    return {"regime.training.learning_rate": rate, "regime.training.head_learning_rate": rate, "calibration": None}


def grid():
    return [{"rate": place} for place in range(3)]
'''
SHARDS = '''"""Four trials of a method that isn't trained."""

METHOD = "bm25"
METRICS = {"F1": "maximize"}


def suggest(trial):
    return {"scoring.pools_per_shard": trial.suggest_categorical("size", [2, 3, 4, 6])}


def grid():
    return [{"size": size} for size in (2, 3, 4, 6)]
'''
PRUNABLE = {"regime.training.selection_metric": "NLL", "regime.training.epochs": 6}
"""Settings with which trials of `RATES` can be stopped by their first epochs."""


def written_space(folder: Path, name: str, text: str) -> Space:
    """A space in a file of its own."""
    (folder / f"{name}.py").write_text(text)
    return load_space(str(folder / f"{name}.py"))


def sweep_settings(space: Space, base: RunConfig) -> SweepSettings:
    return SweepSettings(
        space=space.name,
        space_digest=space.digest,
        method=base.method,
        data=base.data,
        data_digest=read_pool_set(base.data).digest,
        labelled=base.labelled,
        seeds=1,
        limit=base.limit,
        backbone=base.backbone,
        experiment=base.experiment,
        sampler=space.sampler,
        metrics=dict(space.metrics),
        pruner=space.pruner,
        command="test",
    )


def run_sweep(
    space: Space, base: RunConfig, context: RunContext, run_trials: RunTrials, *, concurrent: int = 1
) -> SweepFolder:
    plan = SweepPlan(num_trials=None, concurrent=concurrent, each=ONE_WORKER)
    return sweep(sweep_settings(space, base), space, base, context, plan, run_trials)


def folder_of(space: Space, base: RunConfig, runs: Path) -> SweepFolder:
    return sweep_folder_of(sweep_settings(space, base), runs)


def states(folder: SweepFolder) -> list[str]:
    """What became of each trial."""
    return [trial.state for trial in sweep_trials(folder)]


def stage_of(folder: SweepFolder, trial: int, name: str) -> dict[str, Any]:
    """The stage of a name in a trial's run."""
    return next(stage for stage in folder.run_folder(trial, 1).stages if stage["name"] == name)


def num_told(folder: SweepFolder) -> int:
    """Trials of which the study knows the end."""
    text = folder.journal_path.read_text() if folder.journal_path.is_file() else ""
    return text.count('"datetime_complete":"')


def check_only_one_rate_learns(folder: Path, base: RunConfig, context: RunContext, run_trials: RunTrials) -> None:
    """Check that of the trials of `RATES` those that learn nothing are stopped by their first epochs."""
    found = run_sweep(written_space(folder, "rates", RATES), base, context, run_trials)
    assert states(found) == ["complete", "pruned", "pruned"], sweep_trials(found)
    best = found.best()
    assert best is not None
    assert best.trial == 0
