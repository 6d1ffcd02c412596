"""All views of a sweep folder."""

from __future__ import annotations

from icalib.core.storage import push
from icalib.reports.sweep_html import write_sweep_report
from icalib.reports.sweep_table import write_sweep_csv
from icalib.sweeps.folder import SweepFolder
from icalib.sweeps.trials import sweep_trials


def write_views(folder: SweepFolder) -> None:
    """Write trials.csv and report.html.

    Raises:
        DamagedFileError: a file of the sweep can't be read.
        StorageError: the disk is full or can't be written.
    """
    trials = sweep_trials(folder)
    write_sweep_csv(folder, trials)
    write_sweep_report(folder, trials)
    push(folder.path)
