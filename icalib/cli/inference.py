"""Verbs on finished runs: score, evaluate, predict, report."""

from __future__ import annotations

import json
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Json, PlaceOptions, Run, parsed_pairs, place_argument, place_option
from icalib.cli.output import near, say, say_views, show_sweep, starting
from icalib.core.errors import SettingError, StorageError
from icalib.core.storage import location, pull, push

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icalib.api.options import Place

Limit = Annotated[int | None, typer.Option(min=1, help="Use at most N pools, the same for every run.")]
_ROWS_PER_FILE = 20_000
_CONFIDENCE = 0.9


@verb
def score(
    run: Run,
    pairs: Annotated[
        Path | None, place_argument("Parquet file, or folder of some, of any size, local or e.g. s3://…: see above.")
    ] = None,
    *,
    data: Annotated[
        Path | None, place_option("Pool folder that `icalib prepare` made; its labels may be unknown.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which pools of --data: train, validation or test.")] = "test",
    limit: Limit = None,
    out: Annotated[Path, place_option("Parquet file to write; with PAIRS a folder of such files.")] = Path(
        "predictions.parquet"
    ),
    rows_per_file: Annotated[
        int, typer.Option(min=1, help="Rows of PAIRS that are scored into one file, the unit of work and of resuming.")
    ] = _ROWS_PER_FILE,
    place: PlaceOptions,
) -> None:
    """Write a finished run's predictions for any pools: one row per pair, with probability and uncertainty.

    View rule and calibration are those that the run fitted on its own validation pools. The same command resumes an
    interrupted scoring. Where the run's validation pools have some without a right candidate, the column p_none is
    the probability that none of a pool's candidates is right.

    PAIRS are Parquet files with a column `context` (a text, or a list of turns) and a column `candidate`, one pair a
    row, or `candidates`, one pool a row. Each span of rows becomes one file in the folder OUT, and names file, row and
    candidate; memory grows slowly with the size of PAIRS. Probabilities are those for as many
    candidates as the run's pools have; pools also have p_none.
    """
    starting(f"score {location(run)}")
    if pairs is not None and data is None:
        if limit is not None:
            raise SettingError("--limit takes the first pools of --data; of PAIRS, give the rows that you want.")
        if split != "test":
            raise SettingError(f"--split {split} is for --data: PAIRS have no splits. Leave it out.")
        _score_pairs(run, pairs, out, rows_per_file, place.place())
    elif pairs is None and data is not None:
        if rows_per_file != _ROWS_PER_FILE:
            raise SettingError("--rows-per-file is for PAIRS: of --data, one file is written. Leave it out.")
        _score_pools(run, data, split, limit, out, place.place())
    else:
        raise SettingError("give either PAIRS (Parquet files) or --data (a pool folder).")


def _score_pairs(run: Path, pairs: Path, out: Path, rows_per_file: int, place: Place) -> None:
    from icalib.api.session import session
    from icalib.core.events import Message
    from icalib.pipeline.score_pairs import check_apart, claim, finish, pairs_job, release

    check_apart(pairs, out)
    pull(run)
    job = pairs_job(run, pairs, rows_per_file)
    num_finished = claim(job, out, lambda event: say(event.text) if isinstance(event, Message) else None)
    if num_finished:
        say(f"{num_finished} of {len(job.shards())} files are finished already")
    try:
        with session(place) as active:
            active.context.executor.map(job, out.resolve(), "score", active.context.emit)
    except BaseException:  # also Ctrl-C
        release(job, out)
        raise
    finish(job, out)
    say(f"{location(out)}: {sum(file.num_rows for file in job.files)} rows in {len(job.shards())} files")


def _score_pools(run: Path, data: Path, split: str, limit: int | None, out: Path, place: Place) -> None:
    import pyarrow.parquet as pq

    from icalib.api.options import choice
    from icalib.api.session import session
    from icalib.api.settings import check_has_pools
    from icalib.core.files import atomic_write
    from icalib.data.schema import SPLITS
    from icalib.pipeline.finished import FinishedRun, iter_predictions
    from icalib.pipeline.score_pairs import check_apart

    check_apart(data, out)
    _check_ending(out, (".csv", ".tsv", ".json", ".jsonl"), "a Parquet file is written. Let its name end in .parquet.")
    chosen = choice("split", split, SPLITS)
    finished, num_rows = FinishedRun.open(run), 0
    check_has_pools(data, chosen)
    with (
        session(place) as active,
        atomic_write(out) as temporary,
        pq.ParquetWriter(temporary, finished.fitted.prediction_schema) as writer,
    ):
        for table in iter_predictions(finished, data, chosen, limit, active.context):
            writer.write_table(table)
            num_rows += table.num_rows
    push(out)
    say(f"{location(out)}: {num_rows} pairs")


def _check_ending(out: Path, others: Sequence[str], what: str) -> None:
    """Refuse the name of another kind of file than is written."""
    if out.suffix in others:
        raise SettingError(f"--out {location(out)}: {what}")


@verb
def evaluate(
    run: Run,
    *,
    data: Annotated[
        Path | None, place_option("Another pool folder than the run's own; nothing is fitted on it.")
    ] = None,
    limit: Limit = None,
    judged: Annotated[
        Path | None,
        place_option(
            "People's labels of a random sample of the pools, as `icalib label import` takes them: see above."
        ),
    ] = None,
    judge: Annotated[
        Path | None,
        place_option("Another judge's scores of all the pools: Parquet, JSONL or CSV with query, candidate, score."),
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="JUDGE's own names of the columns: query=NAME,candidate=NAME,score=NAME.")
    ] = None,
    place: PlaceOptions,
    as_json: Json = False,
) -> None:
    """Measure a finished run on the test split of other pools; without --data show its own metrics again.

    Decision threshold, view rule and calibration are those of the run's own validation, so the metrics show how far
    its probabilities can be trusted on data that it hasn't seen. They are kept in RUN/shift/DATA and read from there
    when the same is asked again; `icalib report RUN` shows them too. Without --data, the promises that can be made
    about the run's answers are printed below the metrics.

    With --judged and --judge, R@1 and MAP are inferred on pools whose labels are unknown, of the split that the judged
    ones are of: people's labels say how far the judge can be relied on, and its scores make the interval shorter than
    their labels alone. In JUDGE, the query is the pool's id, and the candidate its index from 0.
    """
    if judged is not None or judge is not None:
        if judged is None or judge is None or limit is not None:
            raise SettingError("--judged and --judge are used together, and without --limit.")
        _evaluate_judged(run, data, judged, judge, columns, place.place(), as_json)
        return
    if columns or (limit is not None and data is None):
        raise SettingError("--limit is for --data and --columns for --judge: name these, or leave the option out.")
    from icalib.api.session import session
    from icalib.api.settings import with_test_pools
    from icalib.core.run_folder import RunFolder
    from icalib.metrics.pairs import PoolScores
    from icalib.pipeline.guarantees import Guarantees
    from icalib.reports.guarantees import print_promises
    from icalib.reports.terminal import print_result, print_shift

    folder = RunFolder.open(run)
    result = own = folder.result
    if data is None:
        print_result(own)
        print_promises(folder)
    else:
        (other,) = with_test_pools([data])
        starting(f"evaluate {location(run)}")
        with session(place.place()) as active:
            result = active.evaluate(folder, other, limit)
        print_shift(result, own)
        scores = PoolScores.from_predictions(folder.shift_predictions(other.resolve().name))
        for note in Guarantees(folder).size_notes(scores, "pools"):
            say(note)
    if as_json:
        typer.echo(json.dumps(result))


def _evaluate_judged(
    run: Path, data: Path | None, judged: Path, judge: Path, columns: list[str] | None, place: Place, as_json: bool
) -> None:
    from icalib.api.labels import evaluate_judged
    from icalib.reports.terminal import print_judged

    starting(f"evaluate {location(run)}")
    names = parsed_pairs("--columns", columns or ())
    found = evaluate_judged(run, judged, judge, data=data, columns=names, **vars(place))
    print_judged(found)
    if as_json:
        typer.echo(json.dumps({"run": location(run), **asdict(found)}))


@verb
def why(
    run: Run,
    pool: Annotated[
        str | None, typer.Argument(help="The pool's id, as predictions name it; none: list the worst mistakes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one pool's way through a run: what each part gave each candidate, and why its pseudo label is what it is.

    Without a pool, list each round's most confident wrong pseudo labels, and the most confident wrong test answers.
    An unlabelled training pool is shown as each round's model read it, with p̄, g, Δ, view and rule; a validation or
    test pool as the final model did. The stages of the run are read from the cache beside the experiments.
    """
    from icalib.pipeline.why import mistakes
    from icalib.pipeline.why import why as find
    from icalib.reports.why import print_mistakes, print_why

    pull(run)
    if pool is None:
        wrong = mistakes(run)
        print_mistakes(wrong)
        if as_json:
            typer.echo(json.dumps([asdict(one) for one in wrong]))
        return
    found = find(run, pool)
    print_why(found)
    if as_json:
        typer.echo(json.dumps(found.as_json()))


@verb
def predict(
    run: Run,
    file: Annotated[
        Path, place_argument("JSONL (or .gz), a JSON array or Parquet: contexts with candidates, see above.")
    ],
    out: Annotated[Path | None, place_option("JSONL file to write; default: standard output.")] = None,
    max_error: Annotated[
        float | None,
        typer.Option(help="Answer only so that at most this fraction of the answers is wrong, e.g. 0.1: a promise."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability that the promise of --max-error holds.")] = _CONFIDENCE,
    sets: Annotated[
        float | None,
        typer.Option(help="Also give sets of candidates that contain a right one with this probability, e.g. 0.9."),
    ] = None,
) -> None:
    """Answer questions with a finished run: the best candidate, and the probability that it is right.

    FILE has one JSON object per line (or row), the last utterances of a dialogue and what could be said next:

    {"context": [{"speaker": "user", "text": "My printer hums."}], "candidates": ["Restart it.", "Hello!"], "id": "q1"}

    Each gives one line in the same order: {"id", "answer": index or null, "text", "prob", "abstained", "probs",
    "set"}. A run whose validation pools include some without a right candidate adds "p_none", the probability that none
    of the candidates is right. With --max-error as many questions remain unanswered as it takes for the promise; with
    --sets each line lists enough candidates to contain a right one with the probability asked for. Both are tested on
    the run's test pools and hold for questions that are like them.
    """
    from icalib.core.files import atomic_write, check_file, check_other_file
    from icalib.data.questions import read_questions
    from icalib.pipeline.loaded_ranker import LoadedRanker

    if out is not None:
        _check_ending(out, (".csv", ".tsv", ".parquet", ".gz"), "JSONL is written. Let its name end in .jsonl.")
        check_file(out)
        check_other_file(out, file, "file of questions")
    ranker = LoadedRanker.load(run)
    pull(file)
    predicted = ranker.predict(read_questions(file), max_error=max_error, confidence=confidence, sets=sets)
    lines = "".join(json.dumps(answer.record(), ensure_ascii=False) + "\n" for answer in predicted.answers)
    if out is None:
        typer.echo(lines, nl=False)
    else:
        with atomic_write(out) as temporary:
            temporary.write_text(lines, encoding="utf-8")
        push(out)
    for note in predicted.notes:
        say(note)


@verb
def report(
    folders: Annotated[list[Path], place_argument("Finished runs, or folders of sweeps or of experiments.")],
    out: Annotated[
        Path | None, place_option("HTML file to write; default: report.html, in the folder of a single run.")
    ] = None,
    in_browser: Annotated[bool, typer.Option("--open", help="Open the report that this command writes.")] = False,
) -> None:
    """Print the table of finished runs, write one HTML report of them, and say how to see their curves.

    A sweep's own report is brought up to date. Of an experiment's folder, such as runs/default, it is said where the
    report of its latest comparison is.
    """
    from icalib.reports.sweep_views import write_views
    from icalib.sweeps.folder import SweepFolder

    runs: list[Path] = []
    page: Path | None = None
    for folder in folders:
        pull(folder, leave_out="checkpoints")
        if SweepFolder(folder).exists:
            sweep = SweepFolder.open(folder)
            write_views(sweep)
            show_sweep(sweep)
            page = folder / "report.html"
        elif (latest := _latest_comparison(folder)) is not None:
            say_views(latest, folder)
            if in_browser:
                say(f"not opened, since this command didn't write it and a page can run code: {near(latest)}")
        else:
            runs.append(folder)
    if runs:
        page = _report_runs(runs, out)
    elif out is not None:
        raise SettingError(
            "--out is for a report of runs; those of sweeps and experiments are in their folders. Name runs, or leave "
            "--out out."
        )
    if in_browser and page is not None:
        webbrowser.open(page.resolve().as_uri())


def _latest_comparison(folder: Path) -> Path | None:
    """Return the latest report of an experiment, None of a run; a SettingError says that it has runs alone."""
    if (folder / "config.yaml").exists():
        return None
    latest = max(folder.glob("*.html"), key=lambda path: path.stat().st_mtime, default=None)
    if latest is None and any(folder.glob("*/config.yaml")):
        raise SettingError(
            f"{near(folder)} has runs, and no comparison of them yet. Name the runs to report on, e.g. "
            f"{near(folder)}/*, or run `icalib compare`."
        )
    return latest


def _report_runs(folders: Sequence[Path], out: Path | None) -> Path:
    from icalib.core.run_folder import RunFolder
    from icalib.reports.html import write_report
    from icalib.reports.terminal import print_runs

    runs = [RunFolder.open(folder) for folder in folders]
    default = folders[0] / "report.html" if len(folders) == 1 else Path("report.html")
    try:
        page = write_report(runs, out or default, " · ".join(folder.name for folder in folders[:3]))
    except StorageError as error:
        if out is not None:
            raise
        raise StorageError(f"{error} --out writes it elsewhere.") from error
    print_runs(runs)
    if len(runs) == 1:
        say_views(page, folders[0])
    else:
        say(f"report: {near(page)}")
    return page
