"""What is printed for people."""

from __future__ import annotations

import shlex
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from icalib.core.text import printable

if TYPE_CHECKING:
    from icalib.sweeps.folder import SweepFolder

_SLOW = ("torch", "ray")


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
    """Print a verb's first line once it begins to import torch or Ray, which takes seconds.

    What is found wrong before is then the only line that is printed.
    """
    if not any(name in sys.modules for name in _SLOW):
        sys.meta_path.insert(0, _FirstImport(f"{what}: loading libraries …"))


class _FirstImport(MetaPathFinder):
    """Finds no module; prints a line when the first slow library is looked for."""

    def __init__(self, line: str) -> None:
        self._line: str | None = line

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Print the line, once."""
        if self._line is not None and fullname in _SLOW:
            say(self._line)
            self._line = None


def say(text: str) -> None:
    """Print a line for people, on standard error."""
    typer.echo(printable(text), err=True)
