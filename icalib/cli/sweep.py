"""`icalib sweep`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import Address, Data, Executor, Json, Labelled, RunOptions
from icalib.cli.output import say, show_sweep, starting
from icalib.core.errors import SettingError

if TYPE_CHECKING:
    from icalib.api.sweeps import SweepKeywords


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
    workers: Annotated[int | None, typer.Option(min=1, help="Training workers of each trial; default: 1.")] = None,
    concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Trials at a time; default: one per GPU, or one per four CPU cores."),
    ] = None,
    address: Address = None,
    executor: Executor = "ray",
    dry: Annotated[
        bool,
        typer.Option(
            "--dry",
            help="Show what each threshold setting would pseudo-label, without training students; trains one teacher.",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the trials of the same sweep; cached stages are still shared.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Try many settings of a method; the same command resumes, and with more --trials adds some.

    Trials are compared on validation pools. What they have in common (teacher, scores, students of equal pseudo
    labels) is computed once. Only the best trial is evaluated on test, at the end. While it runs,
    `optuna-dashboard RUNS/EXPERIMENT/sweep-.../study.journal` shows the study too.
    """
    if dry and fresh:
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
        "workers": workers,
        "concurrent": concurrent,
        "address": address,
        "executor": executor,
        "fresh": fresh,
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
