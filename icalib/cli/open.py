"""`icalib open`: where a run's views are."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import place_argument
from icalib.cli.output import say
from icalib.core.errors import RunFolderError
from icalib.core.storage import location, pull


@verb
def open(
    folder: Annotated[Path, place_argument("Folder of a run, a sweep or an experiment.")],
    browser: Annotated[
        bool | None,
        typer.Option(help="Open the report in a browser; default: on a terminal of a desktop."),
    ] = None,
) -> None:
    """Show where a run's report is and how to see its curves, and open the report in a browser."""
    pull(folder, leave_out="checkpoints")
    report = report_of(folder)
    typer.echo(report)
    say(f"curves: {shlex.join(['tensorboard', '--logdir', str(folder)])}")
    say("  then http://localhost:6006/#custom_scalars shows rounds and learning curves first")
    if (folder / "study.journal").is_file():
        say(f"trials: {shlex.join(['optuna-dashboard', str(folder / 'study.journal')])}")
    if _has_desktop() if browser is None else browser:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())


def report_of(folder: Path) -> Path:
    """Return the HTML report of a run, a sweep or an experiment.

    Raises:
        RunFolderError: there is none.
    """
    if not folder.is_dir():
        raise RunFolderError(f"no folder {location(folder)}. Name a folder under runs/, e.g. runs/default.")
    own = folder / "report.html"
    if own.is_file():
        return own
    reports = sorted(folder.glob("*.html"), key=lambda path: path.stat().st_mtime)
    if reports:
        return reports[-1]
    raise RunFolderError(
        f"{location(folder)} has no report: it is not finished, or not a folder of a run. "
        "Run the same command again to resume it, or `icalib report RUN …` to write a report of finished runs."
    )


def _has_desktop() -> bool:
    """Whether a browser would open where the user sees it."""
    has_screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return has_screen and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ
