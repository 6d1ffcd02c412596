"""All views of a sweep folder."""

from __future__ import annotations

from pathlib import Path

from icalib.core.storage import push
from icalib.reports.sweep_csv import write_sweep_csv
from icalib.reports.sweep_html import write_sweep_report
from icalib.reports.sweep_tensorboard import write_sweep_tensorboard
from icalib.sweeps.dashboard import DASHBOARD, write_dashboard_journal
from icalib.sweeps.folder import SweepFolder


def write_views(folder: SweepFolder) -> tuple[Path, Path]:
    """Write the CSV table, the HTML report, TensorBoard's files and optuna-dashboard's; returns the first two."""
    table, report = write_sweep_csv(folder), write_sweep_report(folder)
    write_sweep_tensorboard(folder)
    if folder.journal_path.is_file():
        write_dashboard_journal(folder.journal_path, folder.path / DASHBOARD)
    push(folder.path)
    return table, report
