"""Verbs that ask before money is spent: doctor, plan."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import (
    Address,
    Backbone,
    Data,
    Experiment,
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
from icalib.cli.session import run_context, session
from icalib.cli.settings import check, run_settings
from icalib.core.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icalib.core.check import Check
    from icalib.distributed.doctor.examination import Wanted
    from icalib.pipeline.run import RunSettings
    from icalib.reports.doctor_terminal import Examination


@app.command()
def doctor(
    address: Address = None,
    data: Annotated[Path | None, place_option("Pool folder that every node must read; default: none.")] = None,
    runs: Runs = Path("runs"),
    backbone: Annotated[str, typer.Option(help="Encoder that every node must load.")] = "minilm",
    workers: Annotated[int, typer.Option(min=1, help="Training workers that must fit and reach each other.")] = 2,
    as_json: Json = False,
) -> None:
    """Check a machine or cluster before it costs money; says what to do about each failure.

    Every node is asked for its versions, GPUs, room and clock, and whether it reads the backbone and the pools and
    shares --runs with the others; then a tiny ranker is trained by two workers and scores two shards. The exit code is
    1 if anything failed.
    """
    from icalib.distributed.doctor.examination import Wanted
    from icalib.reports.doctor_terminal import Examination

    wanted = Wanted(runs.resolve(), backbone, data.resolve() if data else None, workers)
    with Examination() as shown:
        checks = list(_examined(address, wanted, shown))
    shown.summary()
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


def _examined(address: str | None, wanted: Wanted, shown: Examination) -> Iterator[Check]:
    from icalib.distributed.doctor.examination import examine, join
    from icalib.distributed.session import stop

    joined = join(address)
    shown.show(joined)
    yield joined
    if joined.status == "fail":
        return
    try:
        for check in examine(wanted, shown.begins):
            shown.show(check)
            yield check
    finally:
        stop()


@app.command()
def plan(
    method: Annotated[str, typer.Argument(metavar="METHOD|SPACE", help="A method, or a tune space for its sweep.")],
    data: Data,
    labelled: Labelled = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, with seeds 1 to N; of a sweep, those of each trial.")] = 1,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of a sweep; default: a grid's points, else 20.")
    ] = None,
    limit: Limit = None,
    settings: Set = None,
    preset: Preset = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Workers = None,
    address: Address = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="What the machines cost an hour, all together, in any currency.")
    ] = None,
    pairs: Annotated[
        float | None, typer.Option(min=1, help="Also predict scoring so many pairs (1e8), from the measured rates.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure the machines anew.")] = False,
    as_json: Json = False,
) -> None:
    """Estimate time, memory and cost of a run or sweep before it starts.

    What the method will do is counted on the actual pools, which are tokenised for it; how long that takes is measured
    with the actual backbone on the actual machines, in about a minute, and kept for the next plan. Stages that runs
    share count once. The report of the run shows the plan beside what it took.
    """
    from icalib.pipeline.plan import plan as make_plan
    from icalib.reports.plan_terminal import print_plan

    chosen = [
        run.model_copy(update={"seed": seed})
        for run in _planned_runs(method, data, labelled, trials, limit, settings, preset, backbone, experiment)
        for seed in range(1, seeds + 1)
    ]
    check(chosen)
    with session(address) as progress:
        made = make_plan(chosen, run_context(progress, runs, workers), pairs=pairs, fresh=fresh)
    found = made.as_json()
    if price_per_hour is not None:
        found["cost"] = {name: seconds / 3600 * price_per_hour for name, seconds in found["seconds"].items()}
    print_plan(method, found)
    if as_json:
        typer.echo(json.dumps(found))


def _planned_runs(
    name: str,
    data: Path,
    labelled: float | None,
    trials: int | None,
    limit: str | None,
    settings: list[str] | None,
    preset: str | None,
    backbone: str | None,
    experiment: str,
) -> list[RunSettings]:
    """The run of a method, or one for each trial of a space."""
    from icalib.sweeps.proposals import proposals
    from icalib.sweeps.space import load_space

    if not is_space(name):
        return [run_settings(name, data, labelled, 1, limit, settings, backbone, experiment, preset=preset)]
    space = load_space(name)
    run = run_settings(space.method, data, labelled, 1, limit, settings, backbone, experiment, preset=preset)
    tried = proposals(space, run.settings, space.sampler, trials)
    return [run.model_copy(update={"settings": proposal.method}) for proposal in tried]


def is_space(name: str) -> bool:
    """Whether a space is meant, not a method; `gpf-bert` is a method, `gpf_bert` a space.

    Raises:
        SettingError: it is neither.
    """
    from icalib.methods.catalogue import method_names
    from icalib.sweeps.space import space_names

    method = name.partition("@")[0]
    if method in method_names():
        return False
    if name.endswith(".py") or name.replace("-", "_") in space_names():
        return True
    if "." in method or method.replace("_", "-") in method_names():
        return False
    raise SettingError(
        f"no method or space `{name}`. `icalib methods` lists the methods; the spaces are {', '.join(space_names())}."
    )
