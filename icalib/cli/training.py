"""Verbs that train: run, compare, curve, sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from icalib.cli.app import verb
from icalib.cli.options import Data, Dry, Json, Labelled, RunOptions, parsed_fractions, place_option
from icalib.cli.output import near, say, say_views, show_sweep, starting
from icalib.core.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icalib.api.sweeps import SweepKeywords
    from icalib.core.stage_cache import Stage


@verb
def run(
    method: Annotated[str, typer.Argument(help="A method's name, an import path, or a run's config.yaml.")],
    *,
    data: Annotated[
        Path | None, place_option("Pool folder that `icalib prepare` made; a path or e.g. s3://bucket/pools.")
    ] = None,
    labelled: Labelled = None,
    seed: Annotated[int | None, typer.Option(help="Root seed; default: 1.")] = None,
    options: RunOptions,
    dry: Dry = False,
    as_json: Json = False,
) -> None:
    """Train and evaluate a method; the same command resumes an interrupted run."""
    starting(f"run {method}")
    from icalib.api.runs import chosen_run, dry_stages, run

    keywords = options.keywords()
    if dry:
        chosen = chosen_run(method, data, labelled, seed, keywords)
        _show_stages(dry_stages([chosen], keywords), as_json=as_json)
        return
    finished = run(method, data, labelled=labelled, seed=seed, **keywords)
    from icalib.reports.terminal import print_result, print_verdict
    from icalib.reports.verdict import verdict_of

    print_verdict(verdict_of([finished.folder]))
    print_result(finished.result)
    say_views(finished.path / "report.html", finished.path)
    if as_json:
        typer.echo(json.dumps(finished.result))


@verb
def compare(
    methods: Annotated[
        list[str],
        typer.Argument(help="Methods, or variants such as pg-drr@head.kernel=matern; the untrained ones are added."),
    ],
    *,
    data: Data,
    labelled: Labelled = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method, with seeds 1 to N.")] = 3,
    shift: Annotated[
        list[Path] | None,
        place_option("Evaluate every run on the test split of this pool folder too; may be repeated."),
    ] = None,
    options: RunOptions,
    dry: Dry = False,
    as_json: Json = False,
) -> None:
    """Run several methods with several seeds; one table with mean ± sd, and one report with paired tests.

    A setting given with --set, or a preset, changes every method that has it. With --shift a table for each of the
    other pool sets shows whose probabilities can be trusted on other data: thresholds and calibration remain those
    of --data.
    """
    starting(f"compare {' '.join(methods)}")
    from icalib.api.options import RunTemplate
    from icalib.api.runs import compare, dry_stages
    from icalib.api.settings import comparison_settings

    keywords = options.keywords()
    if dry:
        chosen = comparison_settings(methods, RunTemplate.of(keywords, data, labelled), seeds)
        _show_stages(dry_stages(chosen, keywords), as_json=as_json)
        return
    compared = compare(methods, data, labelled=labelled, seeds=seeds, shift=shift or (), **keywords)
    from icalib.reports.terminal import print_runs, print_shifts

    folders = [finished.folder for finished in compared.runs]
    print_runs(folders)
    print_shifts(compared.shifts, folders)
    say_views(compared.report, compared.report.parent)
    if as_json:
        typer.echo(json.dumps([*(finished.result for finished in compared.runs), *compared.shifts]))


def _show_stages(stages: Sequence[Stage], *, as_json: bool) -> None:
    from icalib.reports.terminal import print_stages

    print_stages(stages)
    if as_json:
        found = [{"name": str(one.name), "digest": one.digest, "cached": one.reused} for one in stages]
        typer.echo(json.dumps({"stages": found}))


@verb
def curve(
    methods: Annotated[list[str], typer.Argument(help="Methods or variants; the untrained ones are added as lines.")],
    *,
    data: Data,
    fractions: Annotated[
        str, typer.Option(help="Labelled fractions of the training pools, separated by commas.")
    ] = "0.01,0.02,0.05,0.1,0.2",
    seeds: Annotated[int, typer.Option(help="Runs of each method and fraction, with seeds 1 to N.")] = 3,
    split: Annotated[
        Literal["validation", "test"], typer.Option(help="Pools to measure on; decide by validation.")
    ] = "validation",
    options: RunOptions,
    as_json: Json = False,
) -> None:
    """How many labels do I need? Run methods with growing numbers of labels: one table, one plot, one answer.

    With --resample-labels the spread over seeds includes which pools are labelled. Self-training is only worth trying
    where the curve rises.
    """
    starting(f"curve {' '.join(methods)}")
    from icalib.api.runs import curve

    keywords = options.keywords()
    found = curve(methods, data, fractions=parsed_fractions(fractions), seeds=seeds, split=split, **keywords)
    from icalib.reports.terminal import print_label_curve

    print_label_curve(found.curve)
    say(f"report: {near(found.report)}")
    if as_json:
        records = [
            {"curve": name, "num_labels": point.num_labels, **run.result}
            for name, points in found.curve.curves.items()
            for point in points
            for run in point.runs
        ]
        typer.echo(json.dumps([*records, *(run.result for run in found.curve.lines)]))


@verb
def sweep(
    space: Annotated[str, typer.Argument(help="A tune space: its name, its file, or its import path.")],
    *,
    data: Data,
    method: Annotated[str | None, typer.Option(help="Method to tune; default: the space's.")] = None,
    labelled: Labelled = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Total number of trials; default: a grid's points, else 20.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="grid, random, tpe or nsga2; default: the space's.")] = None,
    pruner: Annotated[
        str | None,
        typer.Option(help="Stop poor trials by their first epochs or seeds: none, median, asha or hyperband."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Each trial runs with seeds 1 to N; means count.")] = 1,
    options: RunOptions,
    concurrent: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time; default: one per GPU, or one per four CPU cores.")
    ] = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry",
            help="Show what each threshold setting would pseudo-label, without training students; trains one teacher.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Try many settings of a method; the same command resumes, and with more --trials adds some.

    Trials are compared on validation pools. What they have in common (teacher, scores, students of equal pseudo
    labels) is computed once. Only the best trial is evaluated on test, at the end. While it runs,
    `optuna-dashboard RUNS/EXPERIMENT/sweep-.../study.journal` shows the study too. --workers are those of each trial;
    --fresh forgets the trials of the same sweep, and cached stages are still shared. The exit code is 1 if no trial
    was completed.
    """
    if dry and options.fresh:
        raise SettingError(
            "--dry and --fresh can't be combined: --fresh would delete the sweep. Leave one of them out."
        )
    starting(f"sweep {space}")
    from icalib.api.sweeps import dry_sweep, sweep

    keywords: SweepKeywords = {
        **options.keywords(),
        "method": method,
        "sampler": sampler,
        "pruner": pruner,
        "seeds": seeds,
        "concurrent": concurrent,
    }
    if dry:
        folder = dry_sweep(space, data, labelled, trials, keywords)
        from icalib.reports.sweep_views import print_dry

        print_dry(folder)
        say(f"table: {folder.dry_path}")
        return
    finished = sweep(space, data, labelled=labelled, trials=trials, **keywords)
    show_sweep(finished.folder)
    if as_json:
        result = finished.best.model_dump(mode="json") if finished.best else None
        typer.echo(json.dumps({"sweep": str(finished.path), "best": result}))
    if finished.best is None:
        say("No trial was completed. Fix what the failed ones name; the same command runs them again.")
        raise typer.Exit(1)
