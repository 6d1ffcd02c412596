"""`icalib export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icalib.api.exports import CalibrationChoice, ExportFormat
from icalib.cli.app import verb
from icalib.cli.options import Run, place_option
from icalib.cli.output import say
from icalib.core.storage import location


@verb
def export(
    run: Run,
    *,
    out: Annotated[Path, place_option("Folder to write; it must not exist, or be empty.")],
    format: Annotated[
        ExportFormat,
        typer.Option(help="cross-encoder: a folder that stock sentence_transformers.CrossEncoder loads."),
    ] = "cross-encoder",
    calibration: Annotated[
        CalibrationChoice,
        typer.Option(
            help="run: what the run has fitted, or none; platt or temperature: fitted here to the run's validation "
            "predictions."
        ),
    ] = "run",
    license: Annotated[str, typer.Option(help="Licence of the model, for its card: e.g. apache-2.0.")] = "unknown",
) -> None:
    """Write a finished run's ranker as a folder that other software loads, with a model card.

    The model is compared with the run's ranker before anything is written; what a format can't express is refused, and
    the message names the alternative.
    """
    from icalib.api.exports import export as export_run

    written = export_run(run, out, format=format, calibration=calibration, license=license)
    say(f"{location(written)}: {format}; README.md is its card")
