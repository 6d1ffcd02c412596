"""Verbs that bring rankers into use elsewhere: calibrate, export, serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from icalib.cli.app import verb
from icalib.cli.options import Executor, PlaceOptions, Run, parsed_pairs, place_argument, place_option
from icalib.cli.output import say, starting
from icalib.core.errors import SettingError
from icalib.core.storage import location, pull
from icalib.exports.choices import CalibrationChoice, ExportFormat
from icalib.serving.limits import DEFAULT_LIMITS, Limits


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

    Temperature scaling, Platt scaling and isotonic regression are fitted, and a softmax over a query's candidates where
    none has several right ones; cross-validation within the first half chooses one of them, or the scores as they are.
    Then `icalib calibrate --apply CALIBRATOR SCORES --out FILE` adds
    the column calibrated_prob to scores of the same ranker.
    """
    from icalib.api import deploy

    names = parsed_pairs("--columns", columns or ())
    if apply is None:
        from icalib.reports.terminal import print_calibration

        found = deploy.calibrate(scores, out, columns=names, scale=scale, seed=seed)
        print_calibration(found.calibrator)
        say(f"calibrator: {location(out)}")
    elif scale != "auto" or seed != 1:
        raise SettingError("--scale and --seed are for fitting a calibrator. Leave them out with --apply.")
    else:
        applied = deploy.apply(apply, scores, out, columns=names)
        for note in applied.notes:
            say(f"note: {note}")
        say(f"{location(out)}: {applied.num_pairs} pairs")


@verb
def export(
    run: Run,
    *,
    out: Annotated[Path, place_option("Folder to write; it must not exist, or be empty.")],
    format: Annotated[
        ExportFormat | None,
        typer.Option(
            help="cross-encoder: stock sentence_transformers.CrossEncoder loads it. sentence-transformer: stock "
            "SentenceTransformer does (a bi-encoder alone). onnx: a graph from "
            "token ids to probabilities (needs icalib[onnx]). Default: the first of these that computes what the "
            "run does; cross-encoder with --distil."
        ),
    ] = None,
    calibration: Annotated[
        CalibrationChoice,
        typer.Option(
            help="run: what the run has fitted for a pair by itself, or none (platt for a student); platt or "
            "temperature: fitted here to the run's validation predictions."
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
    place: PlaceOptions,
) -> None:
    """Write a finished run's ranker as a folder that other software loads, with a model card.

    The model is compared with the run's ranker before anything is written; what a format can't express is refused, and
    the message names the alternative: a student (--distil) can always be exported. Only a student needs workers.
    """
    starting("export")
    from icalib.api.deploy import export as export_run
    from icalib.core.files import read_json
    from icalib.exports.texts import EXPORT_FILE

    written = export_run(
        run, out, format=format, calibration=calibration, distil=distil, limit=limit, license=license, **vars(place)
    )
    about = read_json(written / EXPORT_FILE)
    if about["distilled"] and (its := about["metrics"].get("the run, test")):
        own = about["metrics"]["this model, test"]
        say(f"the student has R@1 {own['R@1']:.3f} on test, the run {its['R@1']:.3f}")
    say(f"{location(written)}: {about['format']}; README.md is its card")


@verb
def serve(
    run: Run,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in and needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one (local).")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients send as `Authorization: Bearer TOKEN`.")
    ] = None,
    max_body: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request in bytes; larger ones get 413.")
    ] = DEFAULT_LIMITS.max_body_bytes,
    max_candidates: Annotated[
        int, typer.Option(min=1, help="Maximum candidates in a request; more get 413.")
    ] = DEFAULT_LIMITS.max_candidates,
    max_pending: Annotated[
        int, typer.Option(min=1, help="Maximum requests that wait at a time; others get 429.")
    ] = DEFAULT_LIMITS.max_pending,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Maximum copies of the models on Ray; default: one per GPU, or one.")
    ] = None,
    executor: Executor = "ray",
) -> None:
    """Serve a finished run over HTTP: reranking as text-embeddings-inference and Cohere do, and predictions.

    POST /rerank (query, texts), POST /v2/rerank and /v1/rerank (query, documents) and POST /predict (context,
    candidates, as a line of `icalib predict`) answer with calibrated probabilities; GET /health, /info and /metrics
    show the state. On Ray the models are replicas that scale with the load (on a cluster: cluster/serve.yaml);
    --executor local serves from one process. SIGTERM and Ctrl-C answer what has begun, then stop.
    """
    from icalib.core.hosts import is_loopback
    from icalib.pipeline.finished import FinishedRun
    from icalib.serving.limits import read_token

    limits = Limits(max_body_bytes=max_body, max_candidates=max_candidates, max_pending=max_pending)
    token = read_token(token_file, host, say)
    starting("serve")
    pull(run)
    finished = FinishedRun.open(run)
    finished.check_has_models()

    def started(url: str) -> None:
        guarded = "token required" if token else "no token, this machine only"
        say(f"{finished.folder.name} at {url} ({guarded}); Ctrl-C stops it")
        if not is_loopback(host):
            say("HTTP is not encrypted: put an HTTPS proxy in front of it where others share the network")

    try:
        if executor == "local":
            from icalib.serving.local import serve_here

            serve_here(run, host, port, limits, token, started)
        else:
            from icalib.distributed.serving import serve_on_ray
            from icalib.reports.progress import TerminalProgress

            with TerminalProgress() as progress:
                serve_on_ray(
                    run.resolve(), host, port, limits, token_file, replicas, progress.stage("Ray Serve"), started
                )
    except ModuleNotFoundError as error:
        raise SettingError(
            f"serving needs a package that is missing ({error.name}). Install it with: pip install 'icalib[serve]'"
        ) from error
    say("stopped")
