"""A reproduced table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from icalib.reports.console import people_console, titled_table
from icalib.reports.paper_table import Block, Line, Reproduction, blocks


def print_reproduced(reproduction: Reproduction, console: Console | None = None) -> None:
    """Print our values, and the paper's under each row."""
    console = console or people_console()
    console.print(Text(reproduction.notice), soft_wrap=True)
    if reproduction.table.note:
        console.print(Text(reproduction.table.note), soft_wrap=True)
    for block in blocks(reproduction):
        console.print(_grid(f"{reproduction.table.title}: {block.title}", block))
        for line in block.lines:
            if line.remark:
                style = "red" if line.failed else "dim"
                console.print(Text(f"{line.label}: {line.remark}", style=style), soft_wrap=True)
    for mark, letter in reproduction.legend.items():
        console.print(Text(f"{letter}: {mark}"), soft_wrap=True)


def _grid(title: str, block: Block) -> Grid:
    grid = titled_table(title)
    grid.add_column("method", no_wrap=True)
    grid.add_column("values of", no_wrap=True)
    for column in block.columns:
        grid.add_column(column, justify="right", no_wrap=True)
    grid.add_column("")
    for line in block.lines:
        grid.add_row(*_texts(line))
    return grid


def _texts(line: Line) -> list[Text]:
    style = "dim" if line.source else "bold"
    cells = [Text(cell, style=style) for cell in line.cells]
    return [Text(line.label, style="bold"), Text(line.source or "ours", style=style), *cells, Text(line.made, "dim")]
