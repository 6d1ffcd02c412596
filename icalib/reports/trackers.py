"""Runs in MLflow and Weights & Biases, as consumers of events: views of a run folder's tables, like TensorBoard.

Both write to this machine where their own variables say so: MLFLOW_TRACKING_URI=sqlite:///mlflow.db,
WANDB_MODE=offline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from icalib.core.errors import SettingError
from icalib.core.events import Emit, Event, RunUpdated
from icalib.core.files import content_digest
from icalib.core.run_folder import RunFolder
from icalib.reports.tensorboard import ROUND_TAGS, member_of, tracked_settings


class TrackedRun(NamedTuple):
    """What records a metric (name, value, step) of one run, and what ends the run."""

    metric: Callable[[str, float, int], None]
    finish: Callable[[], None]


class Tracking:
    """A consumer of events that sends what is new in a run folder to the run that `begin` starts."""

    def __init__(self, begin: Callable[[RunFolder], TrackedRun]) -> None:
        self._begin = begin
        self._runs: dict[Path, TrackedRun | None] = {}  # None: ended
        self._sent: set[tuple[Path, str, int]] = set()

    def __call__(self, event: Event) -> None:
        """Send what is new."""
        if not isinstance(event, RunUpdated):
            return
        folder = RunFolder(event.path)
        if event.path not in self._runs:
            self._runs[event.path] = self._begin(folder)
        if (tracked := self._runs[event.path]) is None:
            return
        for name, value, step in _points(folder):
            if (event.path, name, step) not in self._sent and math.isfinite(value):
                self._sent.add((event.path, name, step))
                tracked.metric(name, value, step)
        if (folder.path / "metrics.parquet").is_file():
            tracked.finish()
            self._runs[event.path] = None


def _points(folder: RunFolder) -> list[tuple[str, float, int]]:
    """Learning curves by step, rounds by their number, and the final metrics."""
    points = [
        (f"{member_of(row['stage'])}{row['split']}/{row['tag']}", row["value"], row["step"])
        for row in folder.training().to_pylist()
    ]
    for summary in folder.round_summaries():
        values = {tag: getattr(summary, field) for tag, field in ROUND_TAGS.items()}
        points += [(tag, float(value), summary.round) for tag, value in values.items() if value is not None]
    if (folder.path / "metrics.parquet").is_file():
        rows = folder.metrics().to_pylist()
        points += [(f"final_{row['split']}/{row['metric']}", row["value"], 0) for row in rows]
    return points


def trackers(names: Sequence[str]) -> list[Emit]:
    """Return a consumer for each tracker; a SettingError says that one is unknown, or its package is missing."""
    known = {"mlflow": _mlflow_run, "wandb": _wandb_run}
    found: list[Emit] = []
    for name in dict.fromkeys(names):
        if name not in known:
            raise SettingError(f"--track {name} is unknown. Choose one of: {', '.join(known)}.")
        try:
            package = import_module(name)
        except ModuleNotFoundError as error:
            raise SettingError(
                f"--track {name} needs the package {name}. Install it: pip install 'icalib[{name}]'."
            ) from error
        found.append(Tracking(partial(known[name], package)))
    return found


def _mlflow_run(mlflow: Any, folder: RunFolder) -> TrackedRun:
    """Begin or continue a run; MLflow refuses to change a setting, so other settings are another run."""
    client = mlflow.MlflowClient()
    experiment = mlflow.set_experiment(folder.path.parent.name).experiment_id
    tags = {"icalib_run": content_digest({"folder": str(folder.path.resolve()), "settings": folder.config})}
    found = client.search_runs([experiment], f"tags.icalib_run = '{tags['icalib_run']}'", max_results=1)
    run = found[0] if found else client.create_run(experiment, tags=tags, run_name=folder.name)
    for name, value in tracked_settings(folder.config).items():
        client.log_param(run.info.run_id, _mlflow_name(name), str(value)[:6000])
    return TrackedRun(
        lambda name, value, step: client.log_metric(run.info.run_id, _mlflow_name(name), value, step=step),
        lambda: client.set_terminated(run.info.run_id),
    )


def _mlflow_name(name: str) -> str:
    """A name of the characters that MLflow allows: `R@1` is `R_at_1`."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", "_at_"))


def _wandb_run(wandb: Any, folder: RunFolder) -> TrackedRun:
    run = wandb.init(
        project="icalib",
        group=folder.path.parent.name,
        name=folder.name,
        id=content_digest(str(folder.path.resolve())),
        resume="allow",
        reinit="create_new",
        dir=str(folder.path.parent),
        settings=wandb.Settings(silent=True, console="off"),
    )
    # Learning curves count steps and rounds count rounds: neither is the number of calls.
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    run.config.update(tracked_settings(folder.config), allow_val_change=True)
    return TrackedRun(lambda name, value, step: run.log({name: value, "step": step}), run.finish)
