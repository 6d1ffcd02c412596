"""The verb on other rankers' scores: calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from icalib.cli.app import verb
from icalib.cli.options import place_argument, place_option
from icalib.cli.output import say
from icalib.cli.parsing import parsed_pairs
from icalib.core.errors import SettingError
from icalib.core.storage import location


@verb
def calibrate(
    scores: Annotated[
        Path,
        place_argument(
            "Parquet, JSONL or CSV with a row for each query and candidate: query, candidate, score, label."
        ),
    ],
    *,
    out: Annotated[Path, place_option("Folder to write the calibrator to; with --apply the file to write.")],
    apply: Annotated[
        Path | None, place_option("Folder of a calibrator: add its probabilities to SCORES, which need no labels.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help="SCORES' own names of the columns: query=NAME,candidate=NAME,score=NAME,label=NAME."),
    ] = None,
    scale: Annotated[
        Literal["auto", "probability", "logit"],
        typer.Option(help="What scores are; auto: probabilities if all are from 0 to 1, else logits."),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the two halves of the queries.")] = 1,
) -> None:
    """Make the scores of any ranker calibrated probabilities: fit on half of the queries, measure on the other half.

    Temperature scaling, Platt scaling and isotonic regression are fitted; cross-validation within the first half
    chooses one of them, or the scores as they are. Then `icalib calibrate --apply CALIBRATOR SCORES --out FILE` adds
    the column calibrated_prob to scores of the same ranker.
    """
    from icalib.api import calibration

    names = parsed_pairs("--columns", columns or ())
    if apply is None:
        from icalib.reports.calibration import print_calibration

        found = calibration.calibrate(scores, out, columns=names, scale=scale, seed=seed)
        print_calibration(found.calibrator)
        say(f"calibrator: {location(out)}")
    elif scale != "auto" or seed != 1:
        raise SettingError("--scale and --seed are for fitting a calibrator. Leave them out with --apply.")
    else:
        applied = calibration.apply(apply, scores, out, columns=names)
        for note in applied.notes:
            say(f"note: {note}")
        say(f"{location(out)}: {applied.num_pairs} pairs")
