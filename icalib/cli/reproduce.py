"""`icalib reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icalib.cli.app import verb
from icalib.cli.options import ExecutorOptions, RunOptions, place_option
from icalib.cli.output import say, starting
from icalib.core.errors import SettingError
from icalib.core.storage import push

if TYPE_CHECKING:
    from icalib.reports.paper_table import Reproduction


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
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row, with seeds 1 to N.")] = 5


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

    Runs what is missing and uses what exists: the runs are those of `icalib run` and `compare`. A row that fails is
    shown with its error and the others continue; the same command tries it again. The page, its Markdown and the table
    in the terminal say the same; the page's first line says whether the corpus is the paper's.
    """
    from icalib.api.options import RunTemplate
    from icalib.api.session import command_line, session
    from icalib.api.settings import with_test_pools
    from icalib.cli import table_runs
    from icalib.cli.table_plan import planned_rows, print_plan
    from icalib.reports.paper_table import Reproduction
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
    keywords = options.keywords()
    template = RunTemplate.of(data, None, {**keywords, "backbone": options.backbone or wanted.backbone})
    planned = planned_rows(wanted, template, choice.labelled, choice.seeds)
    if dry:
        print_plan(planned, options.runs.resolve())
        return
    with session(executor.place(options.runs)) as active:
        done = [table_runs.run_row(row, active) for row in planned]
        done = [table_runs.evaluate_row(row, others, template.limit.get("test"), active) for row in done]
        if wanted.kind == "cost":
            done = table_runs.time_rows(done, template.data, active)
    data_name = template.data.resolve().name
    page = options.runs / options.experiment / f"{Path(table).stem}-{data_name}.html"
    _show(Reproduction(wanted, data_name, command_line(), tuple(done)), page)


def _list_tables() -> None:
    from icalib.tables.table import load_table, table_names

    for name in table_names():
        found = load_table(name)
        typer.echo(f"{name:<16}{found.source}: {found.title}")


def _show(reproduction: Reproduction, page: Path) -> None:
    from icalib.reports.paper_table import write_markdown
    from icalib.reports.paper_table_html import write_reproduced
    from icalib.reports.paper_table_terminal import print_reproduced

    print_reproduced(reproduction)
    markdown = write_markdown(reproduction, page.with_suffix(".md"))
    write_reproduced(reproduction, page)
    push(markdown)
    push(page)
    say(f"page: {page}   Markdown: {markdown}")
