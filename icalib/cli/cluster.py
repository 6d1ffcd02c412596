"""Verbs that are used before computing time is paid for: doctor, plan."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.api.options import RunTemplate
from icalib.cli.app import verb
from icalib.cli.options import Address, ClusterOptions, Json, PoolOptions, RunOptions, Runs, place_option
from icalib.core.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icalib.core.check import Check
    from icalib.distributed.doctor.examination import Wanted
    from icalib.pipeline.run import RunSettings
    from icalib.reports.doctor_terminal import Examination


@verb
def doctor(
    address: Address = None,
    data: Annotated[Path | None, place_option("Pool folder that every node must read; default: none.")] = None,
    runs: Runs = Path("runs"),
    backbone: Annotated[str, typer.Option(help="Encoder that every node must load.")] = "minilm",
    workers: Annotated[int, typer.Option(min=1, help="Training workers that must fit and reach each other.")] = 2,
    as_json: Json = False,
) -> None:
    """Check a machine or cluster before it costs money; each failure says what to do about it.

    Every node reports its versions, GPUs, memory, disk space and clock, and whether it can read the backbone and the
    pools and shares --runs with the others; then a tiny ranker is trained by two workers and scores two shards. The
    exit code is 1 if anything failed.
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


@dataclass(frozen=True)
class CountOptions:
    """How many runs are planned."""

    seeds: Annotated[
        int, typer.Option(min=1, help="Runs, with seeds 1 to N; for a sweep, the seeds of each trial.")
    ] = 1
    trials: Annotated[int | None, typer.Option(min=1, help="Trials of a sweep; default: a grid's points, else 20.")] = (
        None
    )


@dataclass(frozen=True)
class EstimateOptions:
    """What is estimated besides time and memory."""

    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="What all machines together cost per hour, in any currency.")
    ] = None
    pairs: Annotated[
        float | None,
        typer.Option(min=1, help="Also estimate scoring so many pairs (1e8), from the measured rates."),
    ] = None
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERxNAME",
            help="Estimate for GPUs that are not here, e.g. 8xH200, from FLOPs and their makers' data sheets; nothing "
            "is measured then.",
        ),
    ] = None


@verb
def plan(
    method: Annotated[str, typer.Argument(metavar="METHOD|SPACE", help="A method, or a tune space for its sweep.")],
    *,
    pools: PoolOptions,
    counts: CountOptions,
    options: RunOptions,
    cluster: ClusterOptions,
    estimates: EstimateOptions,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure the machines again.")] = False,
    as_json: Json = False,
) -> None:
    """Estimate time, memory and cost of a run or sweep before it starts.

    What the method will do is counted on the actual pools, which are tokenised for it; how long that takes is measured
    with the actual backbone on the actual machines, in about a minute, and kept for the next plan. Stages that runs
    share count once. The report of the run shows the plan beside what it took.
    """
    from icalib.api.session import session
    from icalib.api.settings import check, with_seeds
    from icalib.pipeline.gpu_rates import TabledGpus
    from icalib.pipeline.plan import plan as make_plan
    from icalib.reports.plan_terminal import print_plan

    gpus = TabledGpus.parse(estimates.gpus) if estimates.gpus is not None else None
    template = RunTemplate.of(pools.data, pools.labelled, options.keywords())
    chosen = [
        seeded for run in _planned_runs(method, template, counts.trials) for seeded in with_seeds(run, counts.seeds)
    ]
    check(chosen)
    with session(cluster.place(options.runs)) as active:
        made = make_plan(chosen, active.context, pairs=estimates.pairs, gpus=gpus, fresh=fresh)
    found = made.as_json()
    if estimates.price_per_hour is not None:
        hourly = estimates.price_per_hour
        for estimate in (found, *found["per_million_pairs"]):
            estimate["cost"] = {name: seconds / 3600 * hourly for name, seconds in estimate["seconds"].items()}
    print_plan(method, found)
    if as_json:
        typer.echo(json.dumps(found))


def _planned_runs(name: str, template: RunTemplate, trials: int | None) -> list[RunSettings]:
    """The run of a method, or one for each trial of a space."""
    from icalib.api.settings import run_settings
    from icalib.sweeps.proposals import proposals
    from icalib.sweeps.space import load_space

    if not is_space(name):
        return [run_settings(name, template)]
    space = load_space(name)
    run = run_settings(space.method, template)
    tried = proposals(space, run.settings, space.sampler, trials)
    return [run.model_copy(update={"settings": proposal.method}) for proposal in tried]


def is_space(name: str) -> bool:
    """Whether a name means a space, not a method; `gpf-bert` is a method, `gpf_bert` a space.

    Raises:
        SettingError: it means neither.
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
