"""`icalib reproduce`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import Address, Backbone, Experiment, Limit, Preset, Runs, Set, Workers, app, place_option
from icalib.cli.output import say
from icalib.cli.session import run_context, session
from icalib.cli.settings import check_preset, check_set, limits, required, run_settings, variant_of, with_tests
from icalib.core.errors import IcalibError, SettingError
from icalib.core.storage import pull, push

if TYPE_CHECKING:
    from icalib.core.run_folder import RunFolder
    from icalib.pipeline.run import RunContext, RunSettings
    from icalib.reports.reproduced import Reproduction, RowRuns
    from icalib.reports.terminal import Progress
    from icalib.tables.table import Row


@app.command()
def reproduce(
    table: Annotated[
        str | None, typer.Argument(help="A table's name (see --list), or a YAML file of the same form.")
    ] = None,
    data: Annotated[Path | None, place_option("Pool folder that `icalib prepare` made.")] = None,
    shift: Annotated[
        list[Path] | None, place_option("Other pool folder, for tables about shift; may be given again.")
    ] = None,
    labelled: Annotated[
        str | None, typer.Option(help="Labelled shares, e.g. 0.01,0.05; default: the table's, else the pools'.")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Only these rows, e.g. bert,icast.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row, with seeds 1 to N.")] = 5,
    limit: Limit = None,
    settings: Set = None,
    preset: Preset = None,
    backbone: Backbone = None,
    runs: Runs = Path("runs"),
    experiment: Experiment = "default",
    workers: Workers = None,
    address: Address = None,
    dry: Annotated[bool, typer.Option("--dry", help="Only say what would run and what is there already.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
) -> None:
    """Make a table or figure of the papers again: ours beside theirs.

    Runs what is missing and takes what is there: the runs are those of `icalib run` and `compare`. A row that fails is
    shown with its error and the others go on; the same command tries it again. The page, its Markdown and the table
    in the terminal say the same; the page's first line says whether the corpus is the paper's.
    """
    from icalib.reports.reproduced import Reproduction
    from icalib.tables.table import load_table, table_names

    if listed or table is None:
        for name in table_names():
            found = load_table(name)
            typer.echo(f"{name:<16}{found.source}: {found.title}")
        return
    wanted = load_table(table)
    if rows is not None:
        wanted = wanted.chosen([name.strip() for name in rows.split(",")])
    others = with_tests(shift or [])
    if others and wanted.kind != "shift":
        raise SettingError(f"--shift is for tables about shift; {table} is about {wanted.kind}. Leave it out.")
    pools = required(data)
    _check_options(wanted.rows, settings, preset)

    def settings_of(row: Row, fraction: float, seed: int) -> RunSettings:
        return run_settings(
            row.variant, pools, fraction, seed, limit, settings, backbone or wanted.backbone, experiment,
            preset=preset, own=row.settings, lenient=True,
        )  # fmt: skip

    planned = [
        _plan(row, fraction, seeds, settings_of)
        for fraction in _fractions(labelled, wanted.labelled, pools)
        for row in wanted.rows
    ]
    if dry:
        _print_plan(planned, runs.resolve())
        return
    with session(address) as progress:
        where = run_context(progress, runs, workers)
        done = [_run(one, where, progress) for one in planned]
        done = [_evaluate(one, others, limits(limit).get("test"), where, progress) for one in done]
        if wanted.kind == "cost":
            done = _costs(done, pools, progress)
    command = shlex.join(["icalib", *sys.argv[1:]])
    name = f"{Path(table).stem}-{pools.resolve().name}.html"
    _show(Reproduction(wanted, pools.resolve().name, command, tuple(done)), runs / experiment / name)


@dataclass(frozen=True)
class _Planned:
    """A row with one labelled part: the settings of its runs, or why there are none."""

    row: Row
    labelled: float
    settings: tuple[RunSettings, ...]
    error: str = ""


def _fractions(text: str | None, own: Sequence[float], pools: Path) -> list[float]:
    """The labelled shares that were asked for, else the table's, else the pools' own."""
    from icalib.data.pools import read_pool_set

    if text is None and own:
        return [*own]
    if text is None:
        default = read_pool_set(pools).default_labelled_fraction
        if default is None:
            raise SettingError("--labelled is missing: neither table nor pools say which share is labelled, e.g. 0.1.")
        return [default]
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"--labelled {text} can't be read; write shares, e.g. 0.01,0.05,0.1.") from error
    if odd := [fraction for fraction in found if not 0 < fraction <= 1]:
        raise SettingError(f"--labelled {odd[0]} is no share; give numbers above 0 and at most 1, e.g. 0.01,0.1.")
    return found


def _check_options(rows: Sequence[Row], settings: list[str] | None, preset: str | None) -> None:
    """Refuse a --set or --preset that fits no row; rows that can't be are shown with their error later."""
    names: list[str] = []
    methods: list[object] = []
    for row in rows:
        with suppress(SettingError):
            methods.append(variant_of(row.method, preset, row.settings, lenient=True))
            names.append(row.method)
    if methods:
        check_preset(preset, names)
        check_set(settings, methods)


def _plan(row: Row, fraction: float, seeds: int, settings_of: Callable[[Row, float, int], RunSettings]) -> _Planned:
    """What can't be (a method that isn't there, data without intents) is found before anything runs."""
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits

    try:
        made = tuple(settings_of(row, fraction, seed) for seed in range(1, seeds + 1))
        check_fits(made[0], read_pool_set(made[0].data))
    except SettingError as error:
        return _Planned(row, fraction, (), str(error))
    return _Planned(row, fraction, made)


def _print_plan(planned: Sequence[_Planned], runs: Path) -> None:
    from icalib.pipeline.run import run_folder_of
    from icalib.reports.reproduced_terminal import print_planned

    lines: list[tuple[str, str]] = []
    times: list[tuple[float, float, float]] = []
    unknown: list[str] = []
    for one in planned:
        if one.error:
            lines.append((f"{one.row.label} ({one.row.method})", f"can't run: {one.error}"))
        folders = [run_folder_of(settings, runs) for settings in one.settings]
        states = [_state(folder) for folder in folders]
        lines += [(folder.name, state) for folder, state in zip(folders, states, strict=True)]
        to_do = len(states) - states.count("is there")
        planned_time = _planned_time(one, runs)
        if to_do and planned_time is None:
            unknown.append(one.row.label)
        elif planned_time is not None:
            times += to_do * [planned_time]
    print_planned(lines)
    counts = {state: sum(line[1] == state for line in lines) for state in ("is there", "goes on", "would run")}
    say(f"{counts['would run']} to run, {counts['goes on']} to go on with, {counts['is there']} there already")
    _say_times(times, list(dict.fromkeys(unknown)))


def _state(folder: RunFolder) -> str:
    return "is there" if folder.is_finished else "goes on" if folder.path.is_dir() else "would run"


def _planned_time(one: _Planned, runs: Path) -> tuple[float, float, float] | None:
    """Expected, least and most seconds of a run of the row; the plan of one seed stands for the others."""
    from icalib.core.files import read_json
    from icalib.pipeline.run import plan_path

    for settings in one.settings:
        path = plan_path(settings, runs)
        pull(path)
        if path.is_file():
            seconds = read_json(path)["seconds"]
            return seconds["expected"], seconds["low"], seconds["high"]
    return None


def _say_times(times: Sequence[tuple[float, float, float]], unknown: Sequence[str]) -> None:
    from icalib.reports.comparison import format_seconds

    if times:
        expected, low, high = (format_seconds(sum(parts)) for parts in zip(*times, strict=True))
        say(f"about {expected} ({low} to {high}) for {len(times)} of them by `icalib plan`, less with shared stages")
    if unknown:
        say(f"no plan is known of: {', '.join(unknown)}; `icalib plan METHOD` with the same options makes one")


def _run(one: _Planned, where: RunContext, progress: Progress) -> RowRuns:
    """The runs of a row; the first that fails ends the row, not the table."""
    from icalib.pipeline.run import run
    from icalib.reports.reproduced import RowRuns

    finished: list[RunFolder] = []
    for settings in one.settings:
        progress.message(f"{one.row.label}: {settings.method}, {settings.labelled:.3g} labelled, seed {settings.seed}")
        try:
            finished.append(run(settings, where))
        except IcalibError as error:
            progress.message(f"{one.row.label} failed: {error}")
            return RowRuns(one.row, one.labelled, tuple(finished), f"seed {settings.seed}: {error}")
    return RowRuns(one.row, one.labelled, tuple(finished), one.error)


def _evaluate(
    one: RowRuns, others: Sequence[Path], limit: int | None, where: RunContext, progress: Progress
) -> RowRuns:
    """Its runs on other pools; the results stay in their folders. The first that fails ends the row, not the table."""
    from icalib.pipeline.inference import FinishedRun, evaluate

    for data in others:
        for folder in one.runs:
            progress.message(f"{folder.name} on {data.resolve().name}")
            try:
                evaluate(FinishedRun.open(folder.path), data, limit, where)
            except IcalibError as error:
                progress.message(f"{one.row.label} failed on {data.resolve().name}: {error}")
                return _with_error(one, f"{folder.name} on {data.resolve().name}: {error}")
    return one


def _with_error(one: RowRuns, error: str) -> RowRuns:
    return replace(one, error="; ".join(part for part in (one.error, error) if part))


def _costs(rows: Sequence[RowRuns], pools: Path, progress: Progress) -> list[RowRuns]:
    """What the first seed of each row costs, all timed in turn; a row that can't be opened is left out."""
    from icalib.pipeline.inference import FinishedRun, cost_of

    done = list(rows)
    opened: dict[int, FinishedRun] = {}
    for place, one in enumerate(rows):
        try:
            if one.runs:
                opened[place] = FinishedRun.open(one.runs[0].path)
        except IcalibError as error:
            done[place] = _with_error(one, f"timing: {error}")
    if not opened:
        return done
    progress.message("timing the rows in turn, one process and one thread each")
    try:
        costs = cost_of(list(opened.values()), pools, num_pairs=500, repeats=5)
    except IcalibError as error:
        return [_with_error(one, f"timing: {error}") if place in opened else one for place, one in enumerate(done)]
    for place, cost in zip(opened, costs, strict=True):
        done[place] = replace(done[place], cost=cost)
    return done


def _show(reproduction: Reproduction, page: Path) -> None:
    from icalib.reports.reproduced import write_markdown
    from icalib.reports.reproduced_html import write_reproduced
    from icalib.reports.reproduced_terminal import print_reproduced

    print_reproduced(reproduction)
    markdown = write_markdown(reproduction, page.with_suffix(".md"))
    write_reproduced(reproduction, page)
    push(markdown)
    push(page)
    say(f"page: {page}   Markdown: {markdown}")
