"""A small sweep on the tiny backbone, run as its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.runs import ONE_WORKER, Silent, run_context, small_settings
from icalib.distributed.sweep import Plan, sweep

from icalib.data.pools import read_pool_set
from icalib.distributed import session
from icalib.pipeline.run import RunSettings
from icalib.sweeps.folder import SweepFolder, SweepSettings
from icalib.sweeps.space import Space, load_space

SPACE = '''"""Two rules that agree, one that differs, and a backbone that isn't there."""

METHOD = "icast"
METRICS = {"F1": "maximize"}
POINTS = [
    {"regime.rule.positive_threshold": 0.3},
    {"regime.rule.positive_threshold": 0.3000001},
    {"encoder.backbone": "/nowhere"},
    {"regime.rule.positive_threshold": 0.31},
]


def suggest(trial):
    return POINTS[trial.suggest_categorical("point", [0, 1, 2, 3])]


def grid():
    return [{"point": number} for number in range(4)]
'''


def sweep_settings(space: Space, base: RunSettings) -> SweepSettings:
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


def run_sweep(runs: Path, pools: Path, backbone: Path) -> SweepFolder:
    space = load_space(str(runs / "rules.py"))
    return run_space(space, small_settings("icast", pools, backbone), runs, concurrent=2)


def run_space(space: Space, base: RunSettings, runs: Path, concurrent: int) -> SweepFolder:
    plan = Plan(
        num_trials=None,
        concurrent=concurrent,
        each=ONE_WORKER,
        keep="best",
        on_start=lambda folder, number: None,
        on_begin=lambda proposal: None,
        on_end=lambda number: None,
    )
    return sweep(sweep_settings(space, base), space, base, run_context(runs, Silent()), plan)


def start_sweep(runs: Path, pools: Path, backbone: Path) -> subprocess.Popen[bytes]:
    (runs / "rules.py").write_text(SPACE)
    with (runs / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.sweeps", str(runs), str(pools), str(backbone)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


if __name__ == "__main__":
    session.start(num_cpus=2)
    run_sweep(*map(Path, sys.argv[1:]))
    session.stop()
