"""What is printed for people."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from icalib.core.process import QUIET
from icalib.core.text import printable

if TYPE_CHECKING:
    from icalib.sweeps.folder import SweepFolder


def show_sweep(folder: SweepFolder) -> None:
    """Print a sweep's tables, and where its views are."""
    from icalib.reports.sweep_views import print_sweep

    print_sweep(folder)
    say(f"report: {near(folder.path / 'report.html')}")
    say(f"table: {near(folder.path / 'trials.csv')}")


def say_views(report: Path, logdir: Path) -> None:
    """Print where a report is, and the command that shows curves: two lines, since one would not fit in a terminal."""
    say(f"report: {near(report)}")
    say(f"curves: {shlex.join(['tensorboard', '--logdir', str(near(logdir))])}")


def near(path: Path) -> Path:
    """Return a path as one would type it here: relative if it is in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def starting(what: str) -> None:
    """Print the first line of a verb that is about to import torch or Ray, which takes seconds."""
    if "torch" not in sys.modules and not QUIET.get():
        say(f"{what}: loading libraries …")


def say(text: str) -> None:
    """Print a line for people, on standard error."""
    typer.echo(printable(text), err=True)
