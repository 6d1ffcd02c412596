"""`icalib reproduce`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import Address, Backbone, Experiment, Limit, Preset, Runs, Set, Workers, app, place_option
from icalib.cli.session import session, surroundings
from icalib.cli.settings import limits, required, run_settings, with_tests
from icalib.cli.shown import say
from icalib.core.errors import IcalibError, SettingError
from icalib.core.storage import push

if TYPE_CHECKING:
    from icalib.core.run_folder import RunFolder
    from icalib.distributed.run import RunSettings, Surroundings
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
    from icalib.distributed.run import run_folder_of
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

    def settings_of(row: Row, fraction: float | None, seed: int) -> RunSettings:
        return run_settings(
            row.variant, pools, fraction, seed, limit, settings, backbone or wanted.backbone, experiment,
            preset=preset, lenient=True,
        )  # fmt: skip

    planned = [
        _plan(row, fraction, seeds, settings_of)
        for fraction in _fractions(labelled, wanted.labelled)
        for row in wanted.rows
    ]
    if dry:
        _print_plan(planned, lambda one: run_folder_of(one, runs.resolve()))
        return
    with session(address) as progress:
        where = surroundings(progress, runs, workers)
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


def _fractions(text: str | None, own: Sequence[float]) -> list[float | None]:
    if text is None:
        return [*own] or [None]
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"--labelled {text} can't be read; write shares, e.g. 0.01,0.05,0.1.") from error


def _plan(
    row: Row, fraction: float | None, seeds: int, settings_of: Callable[[Row, float | None, int], RunSettings]
) -> _Planned:
    """What can't be (a method that isn't there, data without intents) is found before anything runs."""
    from icalib.data.pools import read_pool_set
    from icalib.distributed.run import check_fits

    try:
        made = tuple(settings_of(row, fraction, seed) for seed in range(1, seeds + 1))
        check_fits(made[0], read_pool_set(made[0].data))
    except SettingError as error:
        return _Planned(row, fraction or 0.0, (), str(error))
    return _Planned(row, made[0].labelled, made)


def _print_plan(planned: Sequence[_Planned], folder_of: Callable[[RunSettings], RunFolder]) -> None:
    from icalib.reports.reproduced_terminal import print_planned

    lines: list[tuple[str, str]] = []
    for one in planned:
        if one.error:
            lines.append((f"{one.row.label} ({one.row.method})", f"can't run: {one.error}"))
        for settings in one.settings:
            folder = folder_of(settings)
            begun = folder.path.is_dir()
            lines.append((folder.name, "is there" if folder.is_finished else "goes on" if begun else "would run"))
    print_planned(lines)
    counts = {state: sum(line[1] == state for line in lines) for state in ("is there", "goes on", "would run")}
    say(f"{counts['would run']} to run, {counts['goes on']} to go on with, {counts['is there']} there already")


def _run(one: _Planned, where: Surroundings, progress: Progress) -> RowRuns:
    """The runs of a row; the first that fails ends the row, not the table."""
    from icalib.distributed.run import run
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
    one: RowRuns, others: Sequence[Path], limit: int | None, where: Surroundings, progress: Progress
) -> RowRuns:
    """Its runs on other pools; the results stay in their folders."""
    from icalib.distributed.finished import FinishedRun, evaluate

    for data in others:
        for folder in one.runs:
            progress.message(f"{folder.name} on {data.resolve().name}")
            evaluate(FinishedRun.open(folder.path), data, limit, where)
    return one


def _costs(rows: Sequence[RowRuns], pools: Path, progress: Progress) -> list[RowRuns]:
    """What the first seed of each row costs, all timed in turn."""
    from icalib.distributed.finished import FinishedRun, cost_of

    timed = [one for one in rows if one.runs]
    if not timed:
        return list(rows)
    progress.message("timing the rows in turn, one process and one thread each")
    costs = cost_of([FinishedRun.open(one.runs[0].path) for one in timed], pools, num_pairs=500, repeats=5)
    by_row = {id(one): cost for one, cost in zip(timed, costs, strict=True)}
    return [replace(one, cost=by_row.get(id(one))) for one in rows]


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
