"""Verbs that train: run, compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from icalib.cli.app import (
    Address,
    Backbone,
    Data,
    Experiment,
    Fresh,
    Json,
    Labelled,
    Limit,
    Preset,
    Runs,
    Set,
    Workers,
    app,
    place_option,
)
from icalib.cli.output import print_runs, say, write_comparison
from icalib.cli.session import evaluate_all, run_all, session
from icalib.cli.settings import (
    check,
    check_preset,
    check_set,
    from_config,
    limits,
    required,
    run_settings,
    variant_of,
    with_tests,
)
from icalib.core.storage import local_path


@app.command()
def run(
    method: Annotated[str, typer.Argument(help="A method's name, an import path, or a run's config.yaml.")],
    data: Annotated[
        Path | None, place_option("Pool folder that `icalib prepare` made; a path or e.g. s3://bucket/pools.")
    ] = None,
    labelled: Labelled = None,
    seed: Annotated[int, typer.Option(help="Root seed.")] = 1,
    limit: Limit = None,
    settings: Set = None,
    preset: Preset = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Workers = None,
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Train and evaluate a method; the same command resumes an interrupted run."""
    from icalib.reports.plan_terminal import planned_line
    from icalib.reports.terminal import print_result

    if method.endswith((".yaml", ".yml")):
        chosen = from_config(local_path(method))
    else:
        chosen = run_settings(
            method, required(data), labelled, seed, limit, settings, backbone, experiment, preset=preset
        )
    check([chosen])
    with session(address) as progress:
        (finished,) = run_all(progress, [chosen], runs, workers, fresh=fresh)
    write_comparison([finished], finished.path / "report.html", finished.name)
    print_result(finished.result)
    if finished.planned:
        say(planned_line(finished))
    say(f"report: {finished.path / 'report.html'}   curves: tensorboard --logdir {finished.path}")
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
        place_option("Evaluate every run on the test split of this pool folder too; may be given again."),
    ] = None,
    limit: Limit = None,
    settings: Set = None,
    preset: Preset = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Workers = None,
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run several methods with several seeds; one table with mean ± sd and paired tests, and one report.

    A setting given with --set, or a preset, changes every method that has it. With --shift a table for each of the
    other pool sets shows whose probabilities can be trusted away from home: thresholds and calibration stay those of
    --data.
    """
    check_preset(preset, methods)
    names = list(dict.fromkeys(["bm25", "bi-encoder", *methods]))
    check_set(settings, [variant_of(name, preset, lenient=True) for name in names])
    chosen = [
        run_settings(name, data, labelled, seed, limit, settings, backbone, experiment, preset=preset, lenient=True)
        for seed in range(1, seeds + 1)
        for name in names
        if seed == 1 or name not in ("bm25", "bi-encoder")  # nothing in them is random
    ]
    check(chosen)
    others = with_tests(shift or [])
    with session(address) as progress:
        finished = run_all(progress, chosen, runs, workers, fresh=fresh)
        shifts = evaluate_all(progress, finished, others, limits(limit).get("test"), runs, workers)
    path = write_comparison(
        finished, runs / experiment / f"compare-{data.name}.html", f"{', '.join(methods)} on {data.name}"
    )
    print_runs(finished)
    from icalib.reports.terminal import print_shifts

    print_shifts(shifts)
    say(f"report: {path}   curves: tensorboard --logdir {runs / experiment}")
    if as_json:
        typer.echo(json.dumps([*(folder.result for folder in finished), *shifts]))
