"""`icalib sweep`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import Address, Backbone, Data, Experiment, Json, Labelled, Limit, Preset, Runs, Set, app
from icalib.cli.output import say, show_sweep
from icalib.cli.session import run_context, session
from icalib.cli.settings import changes, check, choice, preset_settings, run_settings
from icalib.core.errors import SettingError

if TYPE_CHECKING:
    from icalib.pipeline.run import RunSettings
    from icalib.sweeps.folder import SweepFolder, SweepSettings
    from icalib.sweeps.proposals import Proposal
    from icalib.sweeps.space import Space


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
        typer.Option(help="Stop poor trials by their first epochs or seeds: none, median, asha or hyperband."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Each trial runs with seeds 1 to N; means count.")] = 1,
    limit: Limit = None,
    settings: Set = None,
    preset: Preset = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Annotated[int | None, typer.Option(min=1, help="Training workers of each trial; default: 1.")] = None,
    concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Trials side by side; default: one a GPU, or one every four CPU cores."),
    ] = None,
    keep: Annotated[
        str, typer.Option(help="Whose models stay when the sweep is over: those of the best trial, or all.")
    ] = "best",
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
    from icalib.data.pools import read_pool_set
    from icalib.sweeps.folder import SweepSettings
    from icalib.sweeps.proposals import proposals
    from icalib.sweeps.space import PRUNERS, SAMPLERS, load_space
    from icalib.sweeps.sweep import why_nothing_is_pruned

    chosen = load_space(space)
    base = run_settings(
        method or chosen.method, data, labelled, 1, limit, settings, backbone, experiment, preset=preset
    )
    wanted = SweepSettings(
        space=chosen.name,
        space_digest=chosen.digest,
        method=base.method,
        data=base.data,
        data_digest=read_pool_set(base.data).digest,
        labelled=base.labelled,
        seeds=seeds,
        limit=base.limit,
        settings={**preset_settings(method or chosen.method, preset), **changes(settings)},
        backbone=base.backbone,
        experiment=experiment,
        sampler=choice("--sampler", sampler or chosen.sampler, SAMPLERS),
        metrics=dict(chosen.metrics),
        pruner=choice("--pruner", pruner or chosen.pruner, PRUNERS),
        command=shlex.join(["icalib", *sys.argv[1:]]),
    )
    if dry and fresh:
        raise SettingError(
            "--dry and --fresh don't go together: --fresh would delete the sweep. Leave one of them out."
        )
    check([base])
    tried = proposals(chosen, base.settings, wanted.sampler, trials)  # what is wrong shows before Ray starts
    idle = why_nothing_is_pruned(wanted, tried)
    if idle and pruner:
        raise SettingError(f"--pruner {pruner} would stop no trial: {idle}. Leave it out.")
    if idle:
        say(f"the pruner {wanted.pruner} will stop no trial: {idle}")
    if dry:
        _dry(tried, wanted, base, runs, workers, address)
        return
    folder = _sweep(chosen, wanted, base, trials, runs, workers, concurrent, keep, address, fresh=fresh)
    show_sweep(folder)
    if as_json:
        best = folder.best()
        result = best.model_dump(mode="json") if best else None
        typer.echo(json.dumps({"sweep": str(folder.path), "best": result}))


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
    from icalib.distributed.session import available_to_trials, start, stop
    from icalib.distributed.tune import run_by_tune
    from icalib.reports.sweep_terminal import SweepProgress
    from icalib.reports.sweep_trials import sweep_trials
    from icalib.reports.terminal import Progress, people_console
    from icalib.sweeps.sweep import KEPT, SweepPlan, sweep, sweep_folder_of

    kept = choice("--keep", keep, KEPT)
    console = people_console()  # one for both displays, else they write over each other
    with SweepProgress(wanted.metrics, console) as progress, Progress(console) as bars:
        start(address)

        def ended(number: int) -> None:
            trials = sweep_trials(sweep_folder_of(wanted, runs.resolve()))
            progress.trial_finished(next(trial for trial in trials if trial.number == number))

        try:
            each, at_once = available_to_trials(workers, concurrent)
            plan = SweepPlan(
                num_trials=trials,
                concurrent=at_once,
                each=each,
                keep=kept,
                on_start=lambda folder, num_trials: progress.sweep_started(sweep_trials(folder), num_trials),
                on_begin=lambda proposal: progress.trial_started(proposal.number, proposal.settings),
                on_end=ended,
            )
            return sweep(wanted, space, base, run_context(bars, runs, workers), plan, run_by_tune, fresh=fresh)
        finally:
            stop()


def _dry(
    tried: Sequence[Proposal],
    wanted: SweepSettings,
    base: RunSettings,
    runs: Path,
    workers: int | None,
    address: str | None,
) -> None:
    from icalib.reports.sweep_terminal import print_dry
    from icalib.sweeps.dry import dry
    from icalib.sweeps.sweep import claimed

    with session(address) as progress, claimed(wanted, runs.resolve()) as folder:
        folder.write_dry(list(dry(tried, base, wanted.seeds, run_context(progress, runs, workers))))
    print_dry(folder)
    say(f"table: {folder.dry_path}")
