"""`icalib reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import RunOptions, parsed_fractions, place_option
from icalib.cli.output import say, starting
from icalib.core.errors import IcalibError, SettingError
from icalib.core.storage import push

if TYPE_CHECKING:
    from icalib.pipeline.config import RunConfig
    from icalib.reports.paper_table import Reproduction, TableRow


@verb
def reproduce(
    table: Annotated[
        str | None, typer.Argument(help="A table's name, or a YAML file of the same form; none: list the tables.")
    ] = None,
    *,
    data: Annotated[Path | None, place_option("Pool folder that `icalib prepare` made.")] = None,
    shift: Annotated[
        list[Path] | None, place_option("Other pool folder, for tables about shift; may be repeated.")
    ] = None,
    labelled: Annotated[
        str | None, typer.Option(help="Labelled fractions, e.g. 0.01,0.05; default: the table's, else the pools'.")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Only these rows, e.g. bert,icast.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each row, with seeds 1 to N; default: as many as the paper has.")
    ] = None,
    options: RunOptions,
    dry: Annotated[bool, typer.Option("--dry", help="Only show what would run and what exists already.")] = False,
) -> None:
    """Make a table or figure of the papers again: ours beside theirs.

    A table is a file with the paper's whole protocol: pools, hyper-parameters, exceptions, seeds, kind of ±. Runs what
    is missing and uses what exists. Where your pools, machine or options differ from the protocol, values are marked;
    the list of marks comes first, with the `prepare` command that would meet it. A row that fails is shown with its
    error and the others continue; the same command tries it again.
    """
    from icalib.api import reproduction
    from icalib.api.options import RunTemplate
    from icalib.api.session import command_line, session
    from icalib.api.settings import with_test_pools
    from icalib.data.pools import read_pool_set
    from icalib.reports.paper_table import Reproduction, corpus_of
    from icalib.tables.table import load_table, table_names

    if table is None:
        for name in table_names():
            found = load_table(name)
            typer.echo(f"{name:<16}{found.source}: {found.title}")
        return
    wanted = load_table(table)
    if rows is not None:
        wanted = wanted.chosen([name.strip() for name in rows.split(",")])
    others = with_test_pools(shift or [])
    if others and wanted.kind != "shift":
        raise SettingError(f"--shift is for tables about shift; {table} is about {wanted.kind}. Leave it out.")
    if not others and wanted.kind == "shift":
        raise SettingError(
            f"{table} tests on other corpora than it trains on: {', '.join(wanted.corpora)}. Name pools of them with "
            "--shift, once for each."
        )
    starting(f"reproduce {table}")
    template = RunTemplate.of(options.keywords(), data)
    fractions = parsed_fractions(labelled, "--labelled") if labelled is not None else None
    planned = reproduction.planned_rows(wanted, template, fractions, seeds)
    pool_set = read_pool_set(template.data)
    other_sets = {other.resolve().name: read_pool_set(other) for other in others}  # results are stored by that name
    made = Reproduction(
        table=wanted,
        data=pool_set.name,
        corpus=corpus_of(pool_set, wanted),
        command=command_line(),
        rows=tuple(planned),
        others={
            name: (corpus_of(one, wanted), tuple(reproduction.pool_marks(wanted, one)))
            for name, one in other_sets.items()
        },
    )
    for mark, letter in made.legend.items():
        say(f"{letter}: {mark}")
    if (command := reproduction.prepare_hint(wanted, template.data)) is not None:
        say(f"pools as in the paper: {command}")
    if dry:
        _say_plan(planned, options.runs.resolve(), fresh=options.fresh)
        return
    with session(template, fresh=template.fresh) as active:
        done = [reproduction.run_row(row, others, template, active) for row in planned]
        if wanted.kind == "cost":
            done = reproduction.time_rows(done, template.data, active)
    folder = options.runs / reproduction.of_protocol(wanted, template).experiment
    page = folder / f"{Path(table).stem}-{pool_set.name}.html"
    _show(replace(made, rows=tuple(done)), page)


def _say_plan(rows: Sequence[TableRow], runs: Path, *, fresh: bool) -> None:
    for one in rows:
        if one.error:
            say(f"{one.row.label} ({one.row.method}) can't run: {one.error}")
        for settings in one.settings:
            say(_planned(settings, runs, fresh=fresh))


def _planned(settings: RunConfig, runs: Path, *, fresh: bool) -> str:
    """Return what would become of a run: also whether its folder has one with other settings, which fails the row."""
    from icalib.core.storage import pull
    from icalib.pipeline.claim import is_started
    from icalib.pipeline.run import run_folder_of

    folder = run_folder_of(settings, runs)
    if fresh:
        return f"to run    {folder.name}"
    pull(folder.path, leave_out="checkpoints")
    try:
        is_finished = is_started(folder, settings) and folder.is_finished
    except IcalibError as error:
        return f"in the way  {folder.name}: {error}"
    return f"{'finished' if is_finished else 'to run  '}  {folder.name}"


def _show(reproduction: Reproduction, page: Path) -> None:
    from icalib.reports.html import write_report
    from icalib.reports.paper_table import print_reproduced, write_reproduced

    print_reproduced(reproduction)
    write_reproduced(reproduction, page)
    push(page)
    say(f"page: {page}")
    runs = [run for row in reproduction.rows for run in row.runs]
    if runs and reproduction.table.kind in ("curve", "reliability", "cases"):
        say(f"diagrams, rounds and cases: {write_report(runs, page.with_name(f'runs-{page.name}'), page.stem)}")
