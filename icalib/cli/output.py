"""What is printed for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from icalib.core.text import printable

if TYPE_CHECKING:
    from icalib.sweeps.folder import SweepFolder


def show_sweep(folder: SweepFolder) -> None:
    """Write all views of a sweep and print its tables."""
    from icalib.reports.sweep_terminal import print_sweep
    from icalib.reports.sweep_views import write_views

    table, report = write_views(folder)
    print_sweep(folder)
    say(f"report: {report}   table: {table}   hparams: tensorboard --logdir {folder.path / 'tb'}")


def starting(what: str) -> None:
    """Print the first line of a verb that computes, before it imports its libraries, which takes seconds."""
    say(f"{what}: loading libraries …")


def say(text: str) -> None:
    """Print a line for people, on standard error."""
    typer.echo(printable(text), err=True)
