"""The verb that shows finished runs: their table, their report, and how to see their curves."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import place_argument, place_option
from icalib.cli.output import near, say, say_views, show_sweep
from icalib.core.storage import pull


@verb
def report(
    folders: Annotated[list[Path], place_argument("Finished runs, or folders of sweeps or of experiments.")],
    out: Annotated[
        Path | None, place_option("HTML file to write; default: report.html, in the folder of a single run.")
    ] = None,
    in_browser: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Print the table of finished runs, write one HTML report of them, and say how to see their curves.

    A sweep's own report is brought up to date. Of an experiment's folder, such as runs/default, it is said where the
    report of its latest comparison is.
    """
    from icalib.reports.sweep_views import write_views
    from icalib.sweeps.folder import SweepFolder

    runs: list[Path] = []
    page = Path()
    for folder in folders:
        pull(folder, leave_out="checkpoints")
        if SweepFolder(folder).exists:
            sweep = SweepFolder.open(folder)
            write_views(sweep)
            show_sweep(sweep)
            page = folder / "report.html"
        elif (latest := _latest_comparison(folder)) is not None:
            page = latest
            say_views(page, folder)
        else:
            runs.append(folder)
    if runs:
        page = _report_runs(runs, out)
    if in_browser:
        webbrowser.open(page.resolve().as_uri())


def _latest_comparison(folder: Path) -> Path | None:
    """Return the latest report in an experiment's folder; None if it has none, or is a run's folder."""
    if (folder / "config.yaml").exists():
        return None
    return max(folder.glob("*.html"), key=lambda path: path.stat().st_mtime, default=None)


def _report_runs(folders: Sequence[Path], out: Path | None) -> Path:
    from icalib.api.runs import write_comparison
    from icalib.core.run_folder import RunFolder
    from icalib.reports.terminal import print_runs

    runs = [RunFolder.open(folder) for folder in folders]
    default = folders[0] / "report.html" if len(folders) == 1 else Path("report.html")
    page = write_comparison(runs, out or default, " · ".join(folder.name for folder in folders[:3]))
    print_runs(runs)
    if len(runs) == 1:
        say_views(page, folders[0])
    else:
        say(f"report: {near(page)}")
    return page
