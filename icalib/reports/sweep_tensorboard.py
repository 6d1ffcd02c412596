"""TensorBoard's HParams page of a whole sweep: tb/trial_0007 has the settings of trial 7 and its validation metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter

from icalib.metrics.catalogue import metric_tag
from icalib.reports.comparison import COLUMNS
from icalib.reports.tensorboard import write_once
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import Trial


def write_sweep_tensorboard(folder: SweepFolder, trials: Sequence[Trial]) -> None:
    """Write each complete trial, once; metrics are means over the seeds.

    Raises:
        StorageError: the disk is full or can't be written; what was written before remains usable.
    """
    shown = tuple(dict.fromkeys((*folder.settings.metrics, *COLUMNS)))
    for trial in trials:
        if trial.state == "complete":
            write_once(folder.path, f"trial_{trial.number:04d}", "final", partial(_write_trial, trial, shown))


def _write_trial(trial: Trial, metrics: tuple[str, ...], writer: SummaryWriter) -> None:
    for metric in metrics:
        mean = trial.mean(metric)
        if mean is not None:
            writer.add_scalar(metric_tag(metric), mean, 0)
    settings = {
        name: value if isinstance(value, int | float | str) else json.dumps(value)
        for name, value in trial.settings.items()
    }
    # Without the first summary, the experiment, the page gathers the settings of all trials: each may have others.
    events = writer.file_writer
    assert events is not None  # open until the writer is closed
    for summary in hparams(settings, {})[1:]:
        events.add_summary(summary)
