"""`icalib reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import ExecutorOptions, RunOptions, place_option
from icalib.cli.output import say, starting
from icalib.core.errors import IcalibError, SettingError
from icalib.core.storage import push

if TYPE_CHECKING:
    from icalib.reports.paper_table import Reproduction, TableRow


@dataclass(frozen=True)
class TableOptions:
    """Which runs a table is made from."""

    shift: Annotated[list[Path] | None, place_option("Other pool folder, for tables about shift; may be repeated.")] = (
        None
    )
    labelled: Annotated[
        str | None, typer.Option(help="Labelled fractions, e.g. 0.01,0.05; default: the table's, else the pools'.")
    ] = None
    rows: Annotated[str | None, typer.Option(help="Only these rows, e.g. bert,icast.")] = None
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each row, with seeds 1 to N; default: as many as the paper has.")
    ] = None


@verb
def reproduce(
    table: Annotated[
        str | None, typer.Argument(help="A table's name (see --list), or a YAML file of the same form.")
    ] = None,
    *,
    data: Annotated[Path | None, place_option("Pool folder that `icalib prepare` made.")] = None,
    choice: TableOptions,
    options: RunOptions,
    executor: ExecutorOptions,
    dry: Annotated[bool, typer.Option("--dry", help="Only show what would run and what exists already.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
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
    from icalib.cli.parsing import parsed_fractions
    from icalib.data.pools import read_pool_set
    from icalib.reports.paper_table import Reproduction, corpus_of
    from icalib.tables.table import load_table

    if listed or table is None:
        _list_tables()
        return
    wanted = load_table(table)
    if choice.rows is not None:
        wanted = wanted.chosen([name.strip() for name in choice.rows.split(",")])
    others = with_test_pools(choice.shift or [])
    if others and wanted.kind != "shift":
        raise SettingError(f"--shift is for tables about shift; {table} is about {wanted.kind}. Leave it out.")
    starting(f"reproduce {table}")
    template = RunTemplate.of(data, None, options.keywords())
    fractions = parsed_fractions(choice.labelled, "--labelled") if choice.labelled is not None else None
    planned = reproduction.planned_rows(wanted, template, fractions, choice.seeds)
    pool_set, other_sets = read_pool_set(template.data), [read_pool_set(other) for other in others]
    made = Reproduction(
        table=wanted,
        data=pool_set.name,
        corpus=corpus_of(pool_set, wanted),
        command=command_line(),
        rows=tuple(planned),
        others={one.name: (corpus_of(one, wanted), tuple(reproduction.pool_marks(wanted, one))) for one in other_sets},
    )
    _say_marks(made, reproduction.prepare_hint(wanted, template.data))
    if dry:
        _print_plan(planned, options.runs.resolve())
        return
    with session(executor.place(options.runs)) as active:
        done = [reproduction.run_row(row, active) for row in planned]
        done = [reproduction.evaluate_row(row, others, template.limit.get("test"), active) for row in done]
        if wanted.kind == "cost":
            done = reproduction.time_rows(done, template.data, active)
    folder = options.runs / reproduction.experiment_of(wanted, template)
    page = folder / f"{Path(table).stem}-{pool_set.name}.html"
    _show(replace(made, rows=tuple(done)), page)


def _say_marks(made: Reproduction, command: str | None) -> None:
    for mark, letter in made.legend.items():
        say(f"{letter}: {mark}")
    if command is not None:
        say(f"pools as in the paper: {command}")


def _print_plan(rows: Sequence[TableRow], runs: Path) -> None:
    """Print which runs exist, which would be resumed and which would start."""
    from icalib.core.storage import pull
    from icalib.pipeline.claim import is_started
    from icalib.pipeline.run import run_folder_of
    from icalib.reports.paper_table import print_planned

    lines: list[tuple[str, str]] = []
    for one in rows:
        if one.error:
            lines.append((f"{one.row.label} ({one.row.method})", f"can't run: {one.error}"))
        for settings in one.settings:
            folder = run_folder_of(settings, runs)
            pull(folder.path, leave_out="checkpoints")
            try:
                started = is_started(folder, settings)
                state = ("finished" if folder.is_finished else "resumes") if started else "would run"
            except IcalibError as error:
                state = f"can't run: {error}"
            lines.append((folder.name, state))
    print_planned(lines)
    counts = {state: sum(line[1] == state for line in lines) for state in ("finished", "resumes", "would run")}
    say(f"{counts['would run']} to run, {counts['resumes']} to resume, {counts['finished']} finished already")


def _list_tables() -> None:
    from icalib.tables.table import load_table, table_names

    for name in table_names():
        found = load_table(name)
        typer.echo(f"{name:<16}{found.source}: {found.title}")


def _show(reproduction: Reproduction, page: Path) -> None:
    from icalib.api.runs import write_comparison
    from icalib.reports.paper_table import print_reproduced, write_markdown, write_reproduced

    print_reproduced(reproduction)
    markdown = write_markdown(reproduction, page.with_suffix(".md"))
    write_reproduced(reproduction, page)
    push(markdown)
    push(page)
    say(f"page: {page}   Markdown: {markdown}")
    runs = [run for row in reproduction.rows for run in row.runs]
    if runs and reproduction.table.kind in ("reliability", "cases"):
        say(f"diagrams and cases: {write_comparison(runs, page.with_name(f'runs-{page.name}'), page.stem)}")
