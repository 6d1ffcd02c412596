"""TensorBoard's HParams page of a whole sweep: one line per trial, final validation metrics of its best checkpoint.

tb/trial_0007    settings and metrics (means over the seeds) of trial 7
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter

from icalib.metrics.catalogue import metric_tag
from icalib.reports.comparison import COLUMNS
from icalib.reports.sweep_trials import Trial, sweep_trials
from icalib.reports.tensorboard import write_once
from icalib.sweeps.folder import SweepFolder


def write_sweep_tensorboard(folder: SweepFolder) -> Path:
    """Update the TensorBoard view of a sweep: each trial that ended, once; returns the folder `tb`.

    Raises:
        StorageError: the disk is full or can't be written; what was written before remains usable.
    """
    shown = tuple(dict.fromkeys((*folder.settings.metrics, *COLUMNS)))
    for trial in sweep_trials(folder):
        if trial.state != "running":
            write_once(folder.path, f"trial_{trial.number:04d}", "final", partial(_write_trial, trial, shown))
    return folder.path / "tb"


def _write_trial(trial: Trial, metrics: tuple[str, ...], writer: SummaryWriter) -> None:
    for metric in metrics:
        mean = trial.mean(metric)
        if mean is not None:
            writer.add_scalar(metric_tag(metric), mean, 0)
    settings = {
        name: value if isinstance(value, int | float | str) else json.dumps(value)
        for name, value in trial.params.items()
    }
    # Without the first summary, the experiment, the page gathers the settings of all trials: each may have others.
    _, start, end = hparams(settings, {})
    events = writer.file_writer
    assert events is not None  # open until the writer is closed
    events.add_summary(start)
    if trial.state != "failed":
        events.add_summary(end)
