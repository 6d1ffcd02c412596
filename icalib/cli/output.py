"""What is printed and written for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from icalib.core.storage import push

if TYPE_CHECKING:
    from icalib.core.run_folder import RunFolder
    from icalib.sweeps.folder import SweepFolder


def write_comparison(runs: list[RunFolder], path: Path, title: str) -> Path:
    """Write one HTML report of finished runs."""
    from icalib.reports.html import write_report

    write_report(runs, path, title)
    push(path)
    return path


def print_runs(runs: list[RunFolder]) -> None:
    """Print the table of finished runs, and paired tests where there are several methods."""
    from icalib.reports.paired_tests import paired_tests
    from icalib.reports.terminal import print_comparison, print_tests

    print_comparison([folder.result for folder in runs])
    by_method: dict[str, list[RunFolder]] = {}
    for folder in runs:
        by_method.setdefault(str(folder.result["method"]), []).append(folder)
    if len(by_method) > 1:
        print_tests(paired_tests(by_method))


def show_sweep(folder: SweepFolder) -> None:
    """Write and print all views of a sweep."""
    from icalib.reports.sweep_csv import write_sweep_csv
    from icalib.reports.sweep_html import write_sweep_report
    from icalib.reports.sweep_tensorboard import write_sweep_tensorboard
    from icalib.reports.sweep_terminal import print_sweep

    table, report = write_sweep_csv(folder), write_sweep_report(folder)
    write_sweep_tensorboard(folder)
    push(folder.path)
    print_sweep(folder)
    say(f"report: {report}   table: {table}   hparams: tensorboard --logdir {folder.path / 'tb'}")


def say(text: str) -> None:
    """Tell people, on standard error."""
    typer.echo(text, err=True)
