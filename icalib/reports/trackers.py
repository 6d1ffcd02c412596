"""Runs in MLflow and Weights & Biases, as consumers of events: views of a run folder's tables, like TensorBoard.

Both write to this machine where their own variables say so: MLFLOW_TRACKING_URI=sqlite:///mlflow.db,
WANDB_MODE=offline.
"""

from __future__ import annotations

import atexit
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from icalib.core.errors import SettingError
from icalib.core.events import Emit, Event, Message, RunUpdated
from icalib.core.run_folder import RunFolder
from icalib.reports.tensorboard import ROUND_TAGS, tracked_settings


class TrackedRun(NamedTuple):
    """What records a metric (name, value, step) of one run, and what ends the run."""

    metric: Callable[[str, float, int], None]
    finish: Callable[[], None]


class Tracking:
    """A consumer of events that sends what is new in a run folder to the run that `begin` starts.

    A run that continues after an interruption is another one of the tracker, with all points of its folder.
    """

    def __init__(self, name: str, begin: Callable[[RunFolder], TrackedRun], emit: Emit) -> None:
        self._name = name
        self._begin = begin
        self._emit = emit
        self._runs: dict[Path, TrackedRun | None] = {}  # None: ended
        self._sent: set[tuple[Path, str, int]] = set()

    def __call__(self, event: Event) -> None:
        """Send what is new; a SettingError says that the tracker can't be reached when a run begins."""
        if not isinstance(event, RunUpdated):
            return
        folder = RunFolder(event.path)
        if event.path not in self._runs:
            self._runs[event.path] = self._begun(folder)
        if (tracked := self._runs[event.path]) is None:
            return
        try:
            is_finished = self._send(folder, tracked)
        except Exception as error:  # a run is worth more than its record elsewhere
            self._emit(Message(f"{self._name} lacks the rest of {folder.name}: {_brief(error)}"))
            is_finished = True
        if is_finished:
            self._runs[event.path] = None

    def _begun(self, folder: RunFolder) -> TrackedRun:
        try:
            return self._begin(folder)
        except Exception as error:
            raise SettingError(
                f"--track {self._name} failed: {_brief(error)}. Correct its settings, or leave out --track; the same "
                "command goes on from here."
            ) from error

    def _send(self, folder: RunFolder, tracked: TrackedRun) -> bool:
        """Send new points and return whether they were the last."""
        for name, value, step in _points(folder):
            if (folder.path, name, step) not in self._sent and math.isfinite(value):
                self._sent.add((folder.path, name, step))
                tracked.metric(name, value, step)
        if not (folder.path / "metrics.parquet").is_file():
            return False
        tracked.finish()
        return True


def _brief(error: Exception) -> str:
    """The first line of a message, of which databases write pages."""
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first[:300]}".removesuffix(".")


def _points(folder: RunFolder) -> list[tuple[str, float, int]]:
    """Learning curves of each stage by step, rounds by their number, and the final metrics."""
    rows = folder.training().to_pylist()
    points = [(f"{row['stage']}/{row['split']}/{row['tag']}", row["value"], row["step"]) for row in rows]
    for summary in folder.round_summaries():
        values = {tag: getattr(summary, field) for tag, field in ROUND_TAGS.items()}
        points += [(tag, float(value), summary.round) for tag, value in values.items() if value is not None]
    if (folder.path / "metrics.parquet").is_file():
        rows = folder.metrics().to_pylist()
        points += [(f"final_{row['split']}/{row['metric']}", row["value"], 0) for row in rows]
    return points


def trackers(names: Sequence[str], emit: Emit) -> list[Emit]:
    """Return a consumer for each tracker; a SettingError says that one is unknown, or its package is missing.

    `emit` shows what a tracker refuses while a run is computed.
    """
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
        found.append(Tracking(name, partial(known[name], package), emit))
    return found


def _name(folder: RunFolder) -> str:
    """A run's own name, which the folder of a sweep's winner hasn't."""
    config = folder.config
    return f"{config['method']}-{Path(config['data']).name}-{config['labelled']:g}-s{config['seed']}"


def _mlflow_run(mlflow: Any, folder: RunFolder) -> TrackedRun:
    client = mlflow.MlflowClient()
    experiment = mlflow.set_experiment(folder.config["experiment"]).experiment_id
    run_id = client.create_run(experiment, run_name=_name(folder)).info.run_id
    for name, value in tracked_settings(folder.config).items():
        client.log_param(run_id, _mlflow_name(name), str(value)[:6000])
    end = atexit.register(partial(client.set_terminated, run_id, "KILLED"))  # unless it finishes before

    def metric(name: str, value: float, step: int) -> None:
        try:
            client.log_metric(run_id, _mlflow_name(name), value, step=step)
        except Exception:
            atexit.unregister(end)  # which would fail, too, after minutes of trying
            raise

    def finish() -> None:
        atexit.unregister(end)
        client.set_terminated(run_id)

    return TrackedRun(metric, finish)


def _mlflow_name(name: str) -> str:
    """A name of the characters that MLflow allows: `R@1` is `R_at_1`."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", "_at_"))


def _wandb_run(wandb: Any, folder: RunFolder) -> TrackedRun:
    run = wandb.init(
        project="icalib",
        group=folder.config["experiment"],
        name=_name(folder),
        reinit="create_new",
        settings=wandb.Settings(silent=True, console="off"),
    )
    # Learning curves count steps and rounds count rounds: neither is the number of calls.
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    run.config.update(tracked_settings(folder.config))
    return TrackedRun(lambda name, value, step: run.log({name: value, "step": step}), run.finish)
