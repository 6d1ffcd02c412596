"""`icalib export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icalib.api.options import PlaceKeywords
from icalib.cli.app import verb
from icalib.cli.options import ExecutorOptions, Run, Runs, place_option
from icalib.cli.output import say
from icalib.core.storage import location
from icalib.exports.choices import CalibrationChoice, ExportFormat


@verb
def export(
    run: Run,
    *,
    out: Annotated[Path, place_option("Folder to write; it must not exist, or be empty.")],
    format: Annotated[
        ExportFormat | None,
        typer.Option(
            help="cross-encoder: stock sentence_transformers.CrossEncoder loads it. sentence-transformer: stock "
            "SentenceTransformer does (dual-encoder, bi-encoder, and runs that kept their start). onnx: a graph from "
            "token ids to probabilities (needs icalib[onnx]). Default: the first of these that computes what the "
            "run does; cross-encoder with --distil."
        ),
    ] = None,
    calibration: Annotated[
        CalibrationChoice,
        typer.Option(
            help="run: what the run has fitted, or none (platt for a student); platt or temperature: fitted here to "
            "the run's validation predictions."
        ),
    ] = "run",
    distil: Annotated[
        bool,
        typer.Option(
            "--distil",
            help="Export a student: a plain cross-encoder trained to give the run's probabilities on all its training "
            "pools. The card says what that costs.",
        ),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Train a student on at most this many training pools, labelled ones first."),
    ] = None,
    license: Annotated[str, typer.Option(help="Licence of the model, for its card: e.g. apache-2.0.")] = "unknown",
    runs: Runs = Path("runs"),
    executor: ExecutorOptions,
) -> None:
    """Write a finished run's ranker as a folder that other software loads, with a model card.

    The model is compared with the run's ranker before anything is written; what a format can't express is refused, and
    the message names the alternative: a student (--distil) can always be exported. Only a student needs workers.
    """
    from icalib.api.exports import export as export_run
    from icalib.core.files import read_json
    from icalib.exports.texts import EXPORT_FILE

    place: PlaceKeywords = {**executor.keywords(), "runs": runs}
    written = export_run(
        run, out, format=format, calibration=calibration, distil=distil, limit=limit, license=license, **place
    )
    chosen = format or read_json(written / EXPORT_FILE)["format"]
    say(f"{location(written)}: {chosen}; README.md is its card")
