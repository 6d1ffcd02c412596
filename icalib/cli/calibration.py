"""Verbs on other rankers' scores: calibrate, apply."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from icalib.cli.app import verb
from icalib.cli.options import Json, place_argument, place_option
from icalib.cli.output import say
from icalib.cli.parsing import parsed_limit, parsed_pairs
from icalib.core.errors import SettingError
from icalib.core.storage import location

if TYPE_CHECKING:
    from icalib.api.calibration import EndpointKeywords

Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Which columns are read: pool=NAME,candidate=NAME,score=NAME,label=NAME; default: guessed from their "
        "names, and shown."
    ),
]


@dataclass(frozen=True)
class EndpointOptions:
    """A service that gives the scores, and the pools that it scores."""

    endpoint: Annotated[
        str | None, typer.Option(help="URL of a /rerank service instead of SCORES, e.g. http://localhost:8080/rerank.")
    ] = None
    data: Annotated[Path | None, place_option("Labelled pool folder that the service scores.")] = None
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Which of its pools the service scores.")
    ] = "test"
    limit: Annotated[str | None, typer.Option(help="Score at most N pools.")] = None
    protocol: Annotated[
        Literal["auto", "tei", "cohere"],
        typer.Option(help="tei: text-embeddings-inference; cohere: Cohere v2 and vLLM; auto: a first request decides."),
    ] = "auto"
    model: Annotated[str, typer.Option(help="Name of the model, which Cohere's protocol asks for.")] = ""
    token_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the token of the service, e.g. CO_API_KEY.")
    ] = None

    def keywords(self) -> EndpointKeywords:
        """Return them as the API takes them.

        Raises:
            SettingError: the variable is not set, or the limit can't be parsed.
        """
        keywords: EndpointKeywords = {
            "split": self.split,
            "limit": parsed_limit(self.limit).get(self.split),
            "protocol": self.protocol,
            "model": self.model,
            "token": self._token(),
        }
        if self.endpoint is not None:
            keywords["endpoint"] = self.endpoint
        if self.data is not None:
            keywords["data"] = self.data
        return keywords

    def _token(self) -> str:
        if self.token_variable is None:
            return ""
        token = os.environ.get(self.token_variable)
        if not token:
            raise SettingError(
                f"--token-variable {self.token_variable}: the environment variable is not set. Set it to the token, "
                "or leave the option out."
            )
        return token


@dataclass(frozen=True)
class CalibrationTargets:
    """What the calibrator is asked for, and which half of the pools it is fitted on."""

    precision: Annotated[float, typer.Option(help="Precision that accepted pairs are to have.")] = 0.95
    coverage: Annotated[
        float, typer.Option(help="Probability that the answer set of a pool contains a right candidate.")
    ] = 0.9
    scale: Annotated[
        Literal["auto", "probability", "logit"],
        typer.Option(help="What scores are; auto: probabilities if all are from 0 to 1, else logits."),
    ] = "auto"
    seed: Annotated[int, typer.Option(help="Seed of the two halves of the pools.")] = 1


@verb
def calibrate(
    scores: Annotated[
        Path | None, place_argument("Scores: Parquet, JSONL, CSV or a TREC run; a row is a pair, or a pool with lists.")
    ] = None,
    *,
    out: Annotated[Path, place_option("Folder to write: the calibrator and its report.")],
    qrels: Annotated[Path | None, place_option("Judgements of a TREC run, or of scores with candidates.")] = None,
    columns: Columns = None,
    targets: CalibrationTargets,
    endpoint: EndpointOptions,
    as_json: Json = False,
) -> None:
    """Make the scores of any ranker calibrated probabilities: fit on half of the pools, report on the other half.

    Temperature, Platt scaling, isotonic regression and a map that sees the whole pool are fitted; cross-validation
    within the first half chooses one. OUT gets the calibrator for `icalib apply` and a report with a reliability
    diagram, the threshold for --precision, and answer sets.
    """
    import json

    from icalib.api.calibration import CalibrateKeywords
    from icalib.api.calibration import calibrate as fit
    from icalib.reports.calibration import calibration_record, print_calibration

    options: Any = CalibrateKeywords(
        **endpoint.keywords(),
        columns=parsed_pairs("--columns", columns or ()),
        precision=targets.precision,
        coverage=targets.coverage,
        scale=targets.scale,
        seed=targets.seed,
    )
    if qrels is not None:
        options["qrels"] = qrels
    found = fit(scores, out, **options)
    print_calibration(found.calibration)
    say(f"calibrator: {location(out)}   report: {location(out / 'report.html')}")
    if as_json:
        typer.echo(json.dumps(calibration_record(found.calibration)))


@verb
def apply(
    calibrator: Annotated[Path, place_argument("Folder that `icalib calibrate` wrote.")],
    scores: Annotated[
        Path, place_argument("Scores of the same ranker: Parquet of any size, JSONL, CSV or a TREC run.")
    ],
    *,
    out: Annotated[Path, place_option("File to write: .parquet for a Parquet file, else .jsonl.")],
    columns: Columns = None,
    sets: Annotated[bool, typer.Option(help="Also write which candidates are in the answer sets.")] = True,
    any_range: Annotated[
        bool, typer.Option("--any-range", help="Accept scores from another range than that of the calibrator.")
    ] = False,
) -> None:
    """Add calibrated probabilities to a file of scores: calibrated_prob, accepted, in_set."""
    from icalib.api.calibration import apply as write

    applied = write(
        calibrator, scores, out, columns=parsed_pairs("--columns", columns or ()), sets=sets, any_range=any_range
    )
    say(f"{location(out)}: {applied.num_pairs} pairs")
