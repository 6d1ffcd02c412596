"""The command line: verbs only. Each parses, calls and prints; heavy imports wait inside."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from icalib.core.errors import IcalibError, SettingError

if TYPE_CHECKING:
    from icalib.core.run_folder import RunFolder
    from icalib.data.schema import Split
    from icalib.distributed.run import RunSettings, Surroundings
    from icalib.reports.terminal import Progress
    from icalib.sweeps.folder import SweepFolder, SweepSettings
    from icalib.sweeps.space import Space

C = TypeVar("C", bound=str)

app = typer.Typer(
    name="icalib",
    help="Train answer rankers whose probabilities can be trusted, from dialogue logs and few labels.\n\n"
    "Start with `icalib demo`. With your own dialogues: `icalib prepare FILE --out pools/mine`, then "
    "`icalib compare bert tsst icast --data pools/mine --labelled 0.1`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Data = Annotated[Path, typer.Option(help="Pool folder that `icalib prepare` made.")]
Labelled = Annotated[
    float | None,
    typer.Option(
        help="Share of the training pools whose right answer the method sees; default: what prepare was given."
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(
        help="Use at most N pools of each split (`--limit 800`), or of some: train=2000,validation=200,test=400."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting, e.g. --set regime.num_rounds=2; `icalib show METHOD` lists them."),
]
Backbone = Annotated[
    str | None, typer.Option(help="Encoder: minilm (embedded), a folder, or a hub name such as bert-base-uncased.")
]
Runs = Annotated[Path, typer.Option(help="Where run folders and the stage cache lie.")]
Experiment = Annotated[str, typer.Option(help="Folder under --runs that groups runs.")]
Workers = Annotated[
    int | None, typer.Option(help="Training workers; default: one a GPU, or one on this machine's CPU cores.")
]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute everything anew instead of resuming and reusing.")]
Run = Annotated[Path, typer.Argument(help="Finished run folder: runs/EXPERIMENT/METHOD-DATA-LABELLED-sSEED.")]
OtherData = Annotated[
    Path | None, typer.Option(help="Another pool folder than the run's own; nothing is fitted on it.")
]
TestLimit = Annotated[int | None, typer.Option(min=1, help="Use at most N pools, the same for every run.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")]


def main() -> None:
    """Entry point: faults that a user can mend are printed without a traceback."""
    try:
        app()
    except IcalibError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.secho("interrupted; the same command goes on from the last checkpoint.", err=True)
        sys.exit(130)


@app.command()
def demo(
    runs: Runs = Path("runs"),
    seed: Annotated[int, typer.Option(help="Root seed of corpus and runs.")] = 1,
    workers: Workers = None,
    fresh: Fresh = False,
) -> None:
    """Simulate a support-desk corpus and compare BERT, TSST and ICAST with 10 % labels on it, in minutes."""
    from icalib.data.simulate import simulate as simulate_corpus
    from icalib.demo import DEMO_METHODS, demo_settings

    data = runs / "demo" / "pools"
    with _session(None) as progress:
        source = runs / "demo" / "support_desk.jsonl"
        truth = simulate_corpus(source, num_dialogues=600, seed=seed)
        _prepare(progress, source, data, fresh=fresh, labelled=0.10)
        best = truth.best_reachable["test"]
        progress.message(f"label noise lets no ranker be right more often than R@1 = {best:.2f} on the test pools")
        settings = [demo_settings(name, data, seed) for name in DEMO_METHODS]
        finished = _run_all(progress, settings, runs, workers, fresh=fresh)
    report_path = _report(finished, runs / "demo" / "report.html", "icalib demo: a simulated support desk")
    _print_comparison(finished)
    _say(
        f"\nThe curves:  tensorboard --logdir {runs / 'demo'}\nThe report:  {report_path}\n"
        "Your data:   icalib prepare FILE --out pools/mine, then icalib compare bert tsst icast --data pools/mine"
    )


@app.command()
def simulate(
    out: Annotated[Path, typer.Argument(help="JSONL file to write.")],
    dialogues: Annotated[int, typer.Option(help="Dialogues; about 1.7 pools each.")] = 600,
    seed: Annotated[int, typer.Option(help="The corpus depends on it alone.")] = 1,
) -> None:
    """Write a simulated support-desk corpus with known noise, in the JSONL form that prepare reads."""
    from icalib.data.simulate import simulate as simulate_corpus

    truth = simulate_corpus(out, num_dialogues=dialogues, seed=seed)
    _say(f"{out}: {truth.num_dialogues} dialogues; best reachable R@1 on test {truth.best_reachable['test']:.3f}")


@app.command()
def prepare(
    source: Annotated[Path, typer.Argument(help="Dialogues: our JSONL, MSDialog, MANtIS, UDC or ICAST files, or .gz.")],
    out: Annotated[Path, typer.Option(help="Pool folder to write.")],
    labelled: Labelled = None,
    format: Annotated[
        str | None, typer.Option(help="jsonl, msdialog, mantis, mantis-tsv, udc or icast; default: told by content.")
    ] = None,
    candidates: Annotated[int, typer.Option(help="Candidates a pool, the right one among them.")] = 10,
    negatives: Annotated[str, typer.Option(help="Wrong candidates: bm25 (hard) or random.")] = "bm25",
    context_turns: Annotated[int, typer.Option(help="Last utterances that make the context.")] = 4,
    seed: Annotated[int, typer.Option(help="Of splits, negatives and candidate order.")] = 7,
    limit: Annotated[int | None, typer.Option(help="At most N pools a split.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Write bad records to OUT.rejected.jsonl instead of stopping.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a pool folder made from other inputs.")] = False,
    address: Address = None,
) -> None:
    """Turn dialogues into pools: a context, its right response, and wrong ones mined from other dialogues."""
    with _session(address) as progress:
        _prepare(
            progress,
            source,
            out,
            labelled=labelled,
            format=format,
            num_candidates=candidates,
            negative_sampler=negatives,
            context_turns=context_turns,
            seed=seed,
            limit=limit,
            skip_bad=skip_bad,
            fresh=fresh,
        )


@app.command()
def methods() -> None:
    """List the methods with one line each."""
    from icalib.methods.catalogue import describe, method_names

    width = max(map(len, method_names()))
    for name in method_names():
        typer.echo(f"{name:<{width}}  {describe(name)}")


@app.command()
def show(
    method: Annotated[str, typer.Argument(help="A method's name or import path.")],
    settings: Set = None,
) -> None:
    """Print all settings of a method with their values and what they mean."""
    from icalib.core.component import described
    from icalib.methods.catalogue import describe, load_method

    typer.echo(describe(method) + "\n")
    for path, value, text in described(_changed(load_method(method), settings)):
        typer.echo(f"{path} = {json.dumps(value)}")
        if text:
            typer.echo(f"    {text}")


@app.command()
def run(
    method: Annotated[str, typer.Argument(help="A method's name, an import path, or a run's config.yaml.")],
    data: Annotated[Path | None, typer.Option(help="Pool folder that `icalib prepare` made.")] = None,
    labelled: Labelled = None,
    seed: Annotated[int, typer.Option(help="Root seed.")] = 1,
    limit: Limit = None,
    settings: Set = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Workers = None,
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Train and evaluate a method; the same command resumes an interrupted run."""
    from icalib.reports.terminal import print_result

    if method.endswith((".yaml", ".yml")):
        chosen = _from_config(Path(method))
    else:
        chosen = _run_settings(method, _required(data), labelled, seed, limit, settings, backbone, experiment)
    _check([chosen])
    with _session(address) as progress:
        (finished,) = _run_all(progress, [chosen], runs, workers, fresh=fresh)
    _report([finished], finished.path / "report.html", finished.name)
    print_result(finished.result)
    _say(f"report: {finished.path / 'report.html'}   curves: tensorboard --logdir {finished.path}")
    if as_json:
        typer.echo(json.dumps(finished.result))


@app.command()
def compare(
    methods: Annotated[
        list[str],
        typer.Argument(help="Methods, or variants such as pg-drr@head.kernel=matern; bm25 and bi-encoder are added."),
    ],
    data: Data,
    labelled: Labelled = None,
    seeds: Annotated[int, typer.Option(help="Runs of each method, with seeds 1 to N.")] = 3,
    shift: Annotated[
        list[Path] | None,
        typer.Option(help="Evaluate every run on the test split of this pool folder too; may be given again."),
    ] = None,
    limit: Limit = None,
    settings: Set = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Workers = None,
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run several methods with several seeds; one table with mean ± sd and paired tests, and one report.

    A setting given with --set changes every method that has it. With --shift a table for each of the other pool sets
    shows whose probabilities can be trusted away from home: thresholds and calibration stay those of --data.
    """
    names = list(dict.fromkeys(["bm25", "bi-encoder", *methods]))
    chosen = [
        _run_settings(name, data, labelled, seed, limit, settings, backbone, experiment, lenient=True)
        for seed in range(1, seeds + 1)
        for name in names
        if seed == 1 or name not in ("bm25", "bi-encoder")  # nothing in them is random
    ]
    _check(chosen)
    others = _with_tests(shift or [])
    with _session(address) as progress:
        finished = _run_all(progress, chosen, runs, workers, fresh=fresh)
        shifts = _evaluate_all(progress, finished, others, _limits(limit).get("test"), runs, workers)
    path = _report(finished, runs / experiment / f"compare-{data.name}.html", f"{', '.join(methods)} on {data.name}")
    _print_comparison(finished)
    _print_shifts(shifts)
    _say(f"report: {path}   curves: tensorboard --logdir {runs / experiment}")
    if as_json:
        typer.echo(json.dumps([*(folder.result for folder in finished), *shifts]))


@app.command()
def sweep(
    space: Annotated[str, typer.Argument(help="A tune space: its name, its file, or its import path.")],
    data: Data,
    method: Annotated[str | None, typer.Option(help="Method to tune; default: the space's.")] = None,
    labelled: Labelled = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials there should be in the end; default: a grid's points, else 20.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="grid, random, tpe, nsga2 or qmc; default: the space's.")] = None,
    pruner: Annotated[
        str | None,
        typer.Option(help="Stop poor trials between rounds and seeds: none, median, asha or hyperband."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Each trial runs with seeds 1 to N; means count.")] = 1,
    limit: Limit = None,
    settings: Set = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Annotated[int | None, typer.Option(min=1, help="Training workers of each trial; default: 1.")] = None,
    concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Trials side by side; default: one a GPU, or one every four CPU cores."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Whose models stay: those of the best trial, or of all.")] = "best",
    address: Address = None,
    dry: Annotated[
        bool, typer.Option("--dry", help="Only tell what each trial's rule would pseudo-label; trains one teacher.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the trials of the same sweep; cached stages are still shared.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Try many settings of a method; the same command goes on, and with more --trials adds some.

    Trials are judged on validation pools. What they have in common (teacher, scores, students of equal pseudo labels)
    is computed once. The winner alone is measured on test, at the end. While it runs,
    `optuna-dashboard RUNS/EXPERIMENT/sweep-.../study.journal` shows the study too.
    """
    from icalib.sweeps.folder import SweepSettings
    from icalib.sweeps.space import PRUNERS, SAMPLERS, load_space
    from icalib.sweeps.study import proposals

    chosen = load_space(space)
    base = _run_settings(method or chosen.method, data, labelled, 1, limit, settings, backbone, experiment)
    wanted = SweepSettings(
        space=chosen.name,
        space_digest=chosen.digest,
        method=base.method,
        data=base.data,
        labelled=base.labelled,
        seeds=seeds,
        limit=base.limit,
        settings=_changes(settings),
        backbone=base.backbone,
        experiment=experiment,
        sampler=_choice("--sampler", sampler or chosen.sampler, SAMPLERS),
        metrics=dict(chosen.metrics),
        pruner=_choice("--pruner", pruner or chosen.pruner, PRUNERS),
        command=shlex.join(["icalib", *sys.argv[1:]]),
    )
    _check([base])
    proposals(chosen, base.settings, wanted.sampler, 1)  # what is misspelt shows before Ray starts
    if dry:
        _dry(chosen, wanted, base, trials, runs, workers, address, fresh=fresh)
        return
    folder = _sweep(chosen, wanted, base, trials, runs, workers, concurrent, keep, address, fresh=fresh)
    _sweep_views(folder)
    if as_json:
        best = folder.best()
        result = best.model_dump(mode="json") if best else None
        typer.echo(json.dumps({"sweep": str(folder.path), "best": result}))


@app.command()
def score(
    run: Run,
    data: Annotated[Path, typer.Option(help="Pool folder that `icalib prepare` made; its labels may be unknown.")],
    split: Annotated[str, typer.Option(help="Which pools: train, validation or test.")] = "test",
    limit: TestLimit = None,
    out: Annotated[Path, typer.Option(help="Parquet file to write.")] = Path("predictions.parquet"),
    runs: Runs = Path("runs"),
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Write a finished run's predictions for any pools: one row a pair, with probability and uncertainty.

    View rule and calibration are those that the run fitted on its own validation pools. An interrupted scoring goes on
    where it was.
    """
    import pyarrow.parquet as pq

    from icalib.core.files import whole_file
    from icalib.core.run_folder import PREDICTION_SCHEMA
    from icalib.data.schema import SPLITS
    from icalib.distributed.finished import FinishedRun, iter_predictions

    by_name: dict[str, Split] = {name: name for name in SPLITS}
    chosen = by_name.get(split)
    if chosen is None:
        raise SettingError(f"--split {split} is unknown. Choose one of: {', '.join(SPLITS)}.")
    finished, num_rows = FinishedRun.open(run), 0
    _has_pools(data, chosen)
    with (
        _session(address) as progress,
        whole_file(out) as temporary,
        pq.ParquetWriter(temporary, PREDICTION_SCHEMA) as writer,
    ):
        for table in iter_predictions(finished, data, chosen, limit, _surroundings(progress, runs, workers)):
            writer.write_table(table)
            num_rows += table.num_rows
    _say(f"{out}: {num_rows} pairs")


@app.command()
def evaluate(
    run: Run,
    data: OtherData = None,
    limit: TestLimit = None,
    runs: Runs = Path("runs"),
    workers: Workers = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Measure a finished run on the test split of other pools; without --data show its own metrics again.

    Decision threshold, view rule and calibration are those of the run's own validation, so the figures say how far its
    probabilities can be trusted on data that it hasn't seen. They are kept in RUN/shift/DATA and read from there when
    the same is asked again; `icalib report RUN` shows them too.
    """
    from icalib.core.run_folder import RunFolder
    from icalib.reports.terminal import print_result, print_shift

    result = own = RunFolder.open(run).result
    if data is None:
        print_result(own)
    else:
        (other,) = _with_tests([data])
        with _session(address) as progress:
            (result,) = _evaluate_all(progress, [RunFolder(run)], [other], limit, runs, workers)
        print_shift(result, own)
    if as_json:
        typer.echo(json.dumps(result))


@app.command()
def predict(
    run: Run,
    file: Annotated[Path, typer.Argument(help="JSONL (or .gz): a context and its candidates a line, see above.")],
    out: Annotated[Path | None, typer.Option(help="JSONL file to write; default: standard output.")] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="Answer only where sure: the threshold that answers this share of the run's validation."),
    ] = None,
    sets: Annotated[
        float | None,
        typer.Option(help="Also give sets of candidates that hold a right one with this chance, e.g. 0.9."),
    ] = None,
) -> None:
    """Answer questions with a finished run: the best candidate, and the probability that it is right.

    FILE has one JSON object a line, the last utterances of a dialogue and what could be said next:

    {"context": [{"speaker": "user", "text": "My printer hums."}], "candidates": ["Restart it.", "Hello!"], "id": "q1"}

    For each comes one line in the same order: {"id", "answer": index or null, "text", "prob", "abstained", "probs",
    "set"}. With --coverage the unsure ones stay unanswered, and standard error says which share of wrong answers to
    expect; with --sets each line lists enough candidates to hold a right one with the chance asked for. Both are
    measured on the run's validation pools and hold for questions that are like them.
    """
    from icalib.core.files import whole_file
    from icalib.data.questions import read_questions
    from icalib.distributed.finished import FinishedRun
    from icalib.distributed.predict import predict as answer_questions

    finished = FinishedRun.open(run)
    predicted = answer_questions(finished, read_questions(file), coverage=coverage, sets=sets)
    lines = "".join(json.dumps(answer.record(), ensure_ascii=False) + "\n" for answer in predicted.answers)
    if out is None:
        typer.echo(lines, nl=False)
    else:
        with whole_file(out) as temporary:
            temporary.write_text(lines, encoding="utf-8")
    for note in predicted.notes:
        _say(note)


@app.command()
def cost(
    folders: Annotated[list[Path], typer.Argument(help="Finished run folders; the first is what is compared with.")],
    pairs: Annotated[int, typer.Option(min=1, help="Pairs to score, rounded up to whole pools.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; in each, every run scores the same pools.")] = 5,
    data: Annotated[
        Path | None, typer.Option(help="Pool folder whose test pools are scored; default: the first run's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare what answering costs: parameters, and the time to score the same pairs in one process on one thread.

    The time is that of all a method does for its probabilities: every dropout pass, view, ensemble member and
    predicted intent. The runs take turns, so that a busy machine slows all of them alike; still, keep it idle.
    """
    from dataclasses import asdict

    from icalib.distributed.finished import FinishedRun, cost_of
    from icalib.reports.terminal import print_costs

    finished = [FinishedRun.open(folder) for folder in folders]
    costs = cost_of(finished, data or finished[0].settings.data, num_pairs=pairs, repeats=repeats)
    print_costs(costs)
    if as_json:
        typer.echo(json.dumps([asdict(cost) for cost in costs]))


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Finished run folders, or folders of sweeps.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Print the table of some finished runs and write one HTML report of them; a sweep's folder gets its own views."""
    from icalib.core.run_folder import RunFolder
    from icalib.sweeps.folder import SweepFolder

    sweeps = [folder for folder in folders if SweepFolder(folder).exists]
    for folder in sweeps:
        _sweep_views(SweepFolder.open(folder))
    if sweeps and len(sweeps) == len(folders):
        return
    folders = [folder for folder in folders if folder not in sweeps]
    finished = [RunFolder.open(folder) for folder in folders]
    path = _report(finished, out, " · ".join(folder.name for folder in folders[:3]))
    _print_comparison(finished)
    _say(f"report: {path}")


def _sweep(
    space: Space,
    wanted: SweepSettings,
    base: RunSettings,
    trials: int | None,
    runs: Path,
    workers: int | None,
    concurrent: int | None,
    keep: str,
    address: str | None,
    *,
    fresh: bool,
) -> SweepFolder:
    from icalib.distributed import session
    from icalib.distributed.sweep import KEPT, Plan, sweep, sweep_folder_of
    from icalib.reports.sweep_terminal import SweepProgress
    from icalib.reports.sweep_trials import sweep_trials
    from icalib.reports.terminal import Progress, people_console

    kept = _choice("--keep", keep, KEPT)
    console = people_console()  # one for both displays, else they write over each other
    with SweepProgress(wanted.metrics, trials, console) as progress, Progress(console) as bars:
        session.start(address)

        def ended(number: int) -> None:
            found = {trial.number: trial for trial in sweep_trials(sweep_folder_of(wanted, runs.resolve()))}
            trial = found[number]
            values = {metric: mean for metric in wanted.metrics if (mean := trial.mean(metric)) is not None}
            progress.trial_finished(number, trial.state, values, trial.seconds, trial.error)

        try:
            each, at_once = session.available_to_trials(workers, concurrent)
            plan = Plan(
                num_trials=trials,
                concurrent=at_once,
                each=each,
                keep=kept,
                on_begin=lambda proposal: progress.trial_started(proposal.number, proposal.settings),
                on_end=ended,
            )
            return sweep(wanted, space, base, _surroundings(bars, runs, workers), plan, fresh=fresh)
        finally:
            session.stop()


def _dry(
    space: Space,
    wanted: SweepSettings,
    base: RunSettings,
    trials: int | None,
    runs: Path,
    workers: int | None,
    address: str | None,
    *,
    fresh: bool,
) -> None:
    from icalib.distributed.dry import dry
    from icalib.distributed.sweep import claimed
    from icalib.reports.sweep_terminal import print_dry
    from icalib.sweeps.study import proposals

    tried = proposals(space, base.settings, wanted.sampler, trials)
    with _session(address) as progress, claimed(wanted, runs.resolve(), fresh=fresh) as folder:
        folder.write_dry(list(dry(tried, base, wanted.seeds, _surroundings(progress, runs, workers))))
    print_dry(folder)
    _say(f"table: {folder.dry_path}")


def _sweep_views(folder: SweepFolder) -> None:
    from icalib.reports.sweep_csv import write_sweep_csv
    from icalib.reports.sweep_html import write_sweep_report
    from icalib.reports.sweep_tensorboard import write_sweep_tensorboard
    from icalib.reports.sweep_terminal import print_sweep

    table, report = write_sweep_csv(folder), write_sweep_report(folder)
    write_sweep_tensorboard(folder)
    print_sweep(folder)
    _say(f"report: {report}   table: {table}   hparams: tensorboard --logdir {folder.path / 'tb'}")


def _choice(option: str, value: str, choices: Sequence[C]) -> C:
    for choice in choices:
        if choice == value:
            return choice
    raise SettingError(f"{option} {value} is unknown. Choose one of: {', '.join(choices)}.")


@contextmanager
def _session(address: str | None) -> Generator[Progress, None, None]:
    from icalib.distributed import session
    from icalib.reports.terminal import Progress

    with Progress() as progress:
        session.start(address)
        try:
            yield progress
        finally:
            session.stop()


def _prepare(progress: Progress, source: Path, out: Path, **settings: Any) -> None:
    import time

    from icalib.data.prepare import prepare as prepare_pools
    from icalib.distributed.session import parallel_map

    started = time.monotonic()
    current, since = "", started

    def begin(stage: str) -> None:
        nonlocal current, since
        if current:
            progress.finished(current, time.monotonic() - since, False)
        if stage:
            progress.stage(stage, "")
        current, since = stage, time.monotonic()

    def on_progress(stage: str, done: int, total: int | None) -> None:
        if stage != current:
            begin(stage)
        progress.advance(stage, done, total)

    pool_set = prepare_pools(
        source, out, parallel_map=parallel_map, progress=on_progress, note=progress.message, **settings
    )
    begin("")
    counts = ", ".join(f"{number} {split}" for split, number in pool_set.num_pools.items())
    progress.message(f"{out}: {counts} pools, {len(pool_set.intents)} intents, {time.monotonic() - started:.0f} s")


def _run_settings(
    name: str,
    data: Path,
    labelled: float | None,
    seed: int,
    limit: str | None,
    settings: list[str] | None,
    backbone: str | None,
    experiment: str,
    *,
    lenient: bool = False,
) -> RunSettings:
    from icalib.core.component import with_setting
    from icalib.data.pools import read_pool_set
    from icalib.distributed.run import RunSettings
    from icalib.methods.catalogue import load_method

    pool_set = read_pool_set(data)
    fraction = labelled if labelled is not None else pool_set.default_labelled_fraction
    if fraction is None:
        raise SettingError("--labelled is missing: say which share of the training pools is labelled, e.g. 0.1.")
    if not 0 < fraction <= 1:
        raise SettingError(f"--labelled {fraction} is no share; give a number above 0 and at most 1, e.g. 0.1.")
    base, _, variant = name.partition("@")
    method = _changed(load_method(base), variant.split(",") if variant else None)
    method = _changed(method, settings, lenient=lenient)
    if backbone:
        method = with_setting(method, "encoder.backbone", backbone)
    return RunSettings(
        method=base.rpartition(".")[2] + (f"@{variant}" if variant else ""),
        data=data.resolve(),
        labelled=fraction,
        seed=seed,
        limit=_limits(limit),
        backbone=method.encoder.backbone,
        experiment=experiment,
        settings=method,
    )


def _changed(method: Any, settings: list[str] | None, *, lenient: bool = False) -> Any:
    from icalib.core.component import has_setting, with_settings

    changes = _changes(settings)
    if lenient:
        changes = {path: value for path, value in changes.items() if has_setting(method, path)}
    return with_settings(method, changes)


def _changes(settings: list[str] | None) -> dict[str, Any]:
    import yaml

    changes: dict[str, Any] = {}
    for setting in settings or []:
        path, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"--set {setting} has no value; write --set NAME=VALUE, e.g. --set regime.num_rounds=2.")
        changes[path] = yaml.safe_load(text)
    return changes


def _limits(text: str | None) -> dict[Split, int]:
    from icalib.data.schema import SPLITS

    if text is None:
        return {}
    parts: dict[str, str] = dict.fromkeys(SPLITS, text)
    if "=" in text:
        parts = {name.strip(): number for name, _, number in (part.partition("=") for part in text.split(","))}
    limits: dict[Split, int] = {name: int(parts[name]) for name in SPLITS if parts.get(name, "").strip().isdecimal()}
    if len(limits) != len(parts) or min(limits.values(), default=0) < 1:
        raise SettingError(f"--limit {text} can't be read; write a number above 0, or train=2000,test=400.")
    return limits


def _from_config(path: Path) -> RunSettings:
    from icalib.core.component import validated_file
    from icalib.core.run_folder import RUN_VERSION, read_config
    from icalib.distributed.run import RunSettings

    if not path.is_file():
        raise SettingError(f"no config at {path}; name a method or the config.yaml of a run.")
    fields = read_config(path)
    if fields.pop("version", None) != RUN_VERSION:
        raise SettingError(f"{path} is no config of run-folder version {RUN_VERSION}.")
    return validated_file(path, RunSettings, fields)


def _check(chosen: list[RunSettings]) -> None:
    """All faults show before the first run costs anything."""
    from icalib.data.pools import read_pool_set
    from icalib.distributed.run import check_fits

    for settings in chosen:
        check_fits(settings, read_pool_set(settings.data))


def _run_all(
    progress: Progress, chosen: list[RunSettings], runs: Path, workers: int | None, *, fresh: bool
) -> list[RunFolder]:
    from icalib.distributed.run import run

    surroundings = _surroundings(progress, runs, workers)
    finished: list[RunFolder] = []
    for settings in chosen:
        progress.message(f"{settings.method}, seed {settings.seed}")
        finished.append(run(settings, surroundings, fresh=fresh))
    return finished


def _surroundings(progress: Progress, runs: Path, workers: int | None) -> Surroundings:
    from icalib.distributed.run import Surroundings
    from icalib.distributed.session import available
    from icalib.reports.tensorboard import write_tensorboard

    return Surroundings(
        runs=runs.resolve(),
        resources=available(workers),
        reporter=progress,
        on_update=lambda folder: _ignore(write_tensorboard(folder)),
        command=shlex.join(["icalib", *sys.argv[1:]]),
    )


def _with_tests(folders: list[Path]) -> list[Path]:
    """Pool folders to evaluate on; their results are kept by name."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise SettingError(f"two pool folders are called the same ({', '.join(names)}); rename one of them.")
    for folder in folders:
        _has_pools(folder, "test")
    return folders


def _has_pools(folder: Path, split: str) -> None:
    from icalib.data.pools import read_pool_set

    if not read_pool_set(folder).num_pools[split]:
        raise SettingError(f"{folder} has no {split} pools. Name another pool folder, or prepare it with such pools.")


def _evaluate_all(
    progress: Progress,
    finished: list[RunFolder],
    others: list[Path],
    limit: int | None,
    runs: Path,
    workers: int | None,
) -> list[dict[str, Any]]:
    """The metrics of all runs on other pool sets."""
    from icalib.distributed.finished import FinishedRun, evaluate

    results: list[dict[str, Any]] = []
    for data in others:
        for folder in finished:
            progress.message(f"{folder.name} on {data.resolve().name}")
            results.append(evaluate(FinishedRun.open(folder.path), data, limit, _surroundings(progress, runs, workers)))
    return results


def _print_shifts(results: list[dict[str, Any]]) -> None:
    from icalib.reports.terminal import print_shifts

    print_shifts(results)


def _ignore(_: object) -> None:
    """TensorBoard's folder is of no interest to a run."""


def _report(runs: list[RunFolder], path: Path, title: str) -> Path:
    from icalib.reports.html import write_report

    return write_report(runs, path, title)


def _print_comparison(runs: list[RunFolder]) -> None:
    from icalib.reports.paired_tests import paired_tests
    from icalib.reports.terminal import print_comparison, print_tests

    print_comparison([folder.result for folder in runs])
    by_method: dict[str, list[RunFolder]] = {}
    for folder in runs:
        by_method.setdefault(str(folder.result["method"]), []).append(folder)
    if len(by_method) > 1:
        print_tests(paired_tests(by_method))


def _required(data: Path | None) -> Path:
    if data is None:
        raise SettingError("--data is missing: name the pool folder that `icalib prepare` made.")
    return data


def _say(text: str) -> None:
    typer.echo(text, err=True)
