"""A reproduced table: our values beside the paper's, in the terminal and on a page.

Our values are marked with a letter for each way in which they differ from the paper's protocol.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.table import Column
from rich.text import Text

from icalib.core.errors import DataError
from icalib.core.files import read_json
from icalib.core.run_folder import RunFolder, run_command
from icalib.reports.comparison import MISSING, data_name, format_seconds, heading
from icalib.reports.console import people_console, text_table
from icalib.reports.paired_tests import MethodTest, paired_tests
from icalib.tables.table import Row, Table

if TYPE_CHECKING:
    from icalib.data.schema import PoolSet
    from icalib.parts.cost import Cost
    from icalib.pipeline.config import RunConfig

_COSTS = {"parameters": "parameters (M)", "milliseconds": "ms a pair", "ratio": "ratio to the first"}

_CORPORA = {"msdialog": "MSDialog", "mantis": "MANtIS", "mantis-tsv": "MANtIS", "udc": "UDC"}
"""The papers' corpora, by the reader of their raw files."""


@final
@dataclass(frozen=True)
class TableRow:
    """A row of a table with one labelled fraction, and what became of it."""

    row: Row
    labelled: float
    settings: tuple[RunConfig, ...] = ()  # of its runs, one for each seed, none where it can't run
    marks: tuple[str, ...] = ()  # where these differ from the paper's protocol
    runs: tuple[RunFolder, ...] = ()  # that are finished
    error: str = ""
    cost: Cost | None = None

    def failed(self, error: str) -> TableRow:
        """Return the row with one more error."""
        return replace(self, error="; ".join(part for part in (self.error, error) if part))


def corpus_of(pool_set: PoolSet, table: Table) -> str | None:
    """Return which of the table's corpora a pool set is, by its reader or its name; None if it is none of them."""
    read = _CORPORA.get(pool_set.reader)
    named = [corpus for corpus in table.corpora if _letters(corpus) == _letters(pool_set.name)]
    return read if read in table.corpora else next(iter(named), None)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@final
@dataclass(frozen=True)
class Reproduction:
    """A table, and what was run for it."""

    table: Table
    data: str  # name of the pools
    corpus: str | None  # which of the table's corpora they are
    command: str
    rows: tuple[TableRow, ...]
    others: Mapping[str, tuple[str | None, tuple[str, ...]]] = field(default_factory=dict)
    """For each of the other pools that the runs were evaluated on, its corpus and its marks."""

    @property
    def legend(self) -> dict[str, str]:
        """Return the letter of each way in which our values differ from the paper's protocol."""
        every = [mark for one in self.rows for mark in one.marks]
        every += [mark for name in self.others for mark in self.shift_marks(name)]
        letters = (*ascii_lowercase, *("".join(pair) for pair in product(ascii_lowercase, repeat=2)))  # a … z, aa, ab …
        return dict(zip(dict.fromkeys(every), letters, strict=False))

    def shift_marks(self, other: str) -> list[str]:
        """Return where another pool set differs from what the paper tested on."""
        return [f"tested on {other}: {mark}" for mark in self.others[other][1]]

    @property
    def notice(self) -> str:
        """Say what a reader must know first: whether our values may be compared with the paper's."""
        if not self.legend:
            return f"Run on {self.data} with the paper's protocol; where it leaves something open: docs/papers.md."
        return (
            "Letters mark rows of ours whose protocol isn't the paper's: compare the order of the methods and the "
            "size of their differences, not the values."
        )


@final
@dataclass(frozen=True)
class Line:
    """One line of a block."""

    label: str
    source: str  # "ours", or the corpus of a paper's values
    cells: tuple[str, ...]
    remark: str = ""  # how ours came about
    letters: str = ""  # of the legend

    @property
    def values_of(self) -> str:
        """Whose values these are, with the letters of what differs from the paper's protocol."""
        return f"{self.source} {self.letters}".strip()


@final
@dataclass(frozen=True)
class Block:
    """Values that can be compared: of one labelled fraction, trained and tested on the same; ours, then the paper's."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    tests: tuple[MethodTest, ...] = ()


def blocks(reproduction: Reproduction) -> list[Block]:
    """A block for each labelled fraction, and in it for each other pool set that the runs were evaluated on."""
    fractions = sorted({one.labelled for one in reproduction.rows})
    return [
        _block(reproduction, fraction, other)
        for fraction, other in (*product(fractions, (None,)), *product(fractions, reproduction.others))
    ]


def _block(reproduction: Reproduction, fraction: float, other: str | None) -> Block:
    table = reproduction.table
    trained = f"{reproduction.data}, {fraction:.3g} labelled"
    rows = [one for one in reproduction.rows if one.labelled == fraction]
    columns = (
        _COSTS[name] if table.kind == "cost" else heading(name, " %" if table.percent else "") for name in table.metrics
    )
    lines = [line for one in rows for line in (_ours(reproduction, one, other), *_theirs(reproduction, one, other))]
    return Block(
        title=trained if other is None else f"trained on {trained}, tested on {other}",
        headings=("method", "values of", *columns, "remarks on ours"),
        lines=tuple(lines),
        tests=() if table.kind == "cost" else tuple(_tests(rows, other, table.rows[-1].label)),
    )


def _tests(rows: Sequence[TableRow], other: str | None, last: str) -> list[MethodTest]:
    """Test each method against the last row, which is the paper's own; on another pool set where one is named."""
    runs = {one.row.label: [run for run in one.runs if other is None or run.has_shift(other)] for one in rows}
    runs = {label: members for label, members in runs.items() if members}
    try:
        return paired_tests(runs, against=last, shift=other) if last in runs else []
    except DataError:  # the runs were limited to other test pools
        return []


def _ours(reproduction: Reproduction, one: TableRow, other: str | None) -> Line:
    table = reproduction.table
    marks = [*one.marks, *(() if other is None else reproduction.shift_marks(other))]
    letters = ",".join(reproduction.legend[mark] for mark in dict.fromkeys(marks))
    results = [run.result for run in one.runs]
    if other is not None:
        results = [result for run in one.runs for result in run.shifts() if data_name(result) == other]
    if table.kind == "cost":
        values = _cost_cells(table, one.cost)
    else:
        values = tuple(_over_seeds(table, [result["test"].get(name) for result in results]) for name in table.metrics)
    made = [f"{len(results)} {'seed' if len(results) == 1 else 'seeds'}"] if results else []
    if results and other is None:
        made.append(format_seconds(statistics.fmean(result["seconds"]["total"] for result in results)))
    return Line(
        label=one.row.label,
        source="ours",
        cells=values,
        remark="; ".join(filter(None, (*made, one.row.note, one.error))),
        letters=letters if any(value != MISSING for value in values) else "",
    )


def _theirs(reproduction: Reproduction, one: TableRow, other: str | None) -> list[Line]:
    """The paper's lines for our corpora; where ours is none of the paper's, those for all of its corpora."""
    table, trained_on = reproduction.table, reproduction.corpus
    tested_on = None if other is None else reproduction.others[other][0]
    return [
        Line(
            "",
            each.corpus if each.test is None else f"{each.corpus} → {each.test}",
            tuple(_published(table, each.values.get(name)) for name in table.metrics),
        )
        for each in one.row.published
        if (each.labelled is None or abs(each.labelled - one.labelled) < 1e-9)
        and (each.test is None) == (other is None)
        and (trained_on is None or each.corpus == trained_on)
        and (tested_on is None or each.test == tested_on)
    ]


def _cost_cells(table: Table, cost: Cost | None) -> tuple[str, ...]:
    if cost is None:
        return tuple(MISSING for _ in table.metrics)
    values = {
        "parameters": f"{(cost.num_parameters + cost.num_fixed) / 1e6:.2f}",  # random features and posteriors, too
        "milliseconds": f"{cost.milliseconds_per_pair:.2f}",
        "ratio": f"{cost.ratio:.2f} ({cost.ratio_low:.2f}–{cost.ratio_high:.2f})",
    }
    return tuple(values[metric] for metric in table.metrics)


def _over_seeds(table: Table, found: Sequence[float | None]) -> str:
    values = [value for value in found if value is not None]
    if not values:
        return MISSING
    scale, spread = (100 if table.percent else 1), None
    if len(values) > 1:
        of_mean = math.sqrt(len(values)) if table.spread == "standard error" else 1.0
        spread = scale * statistics.stdev(values) / of_mean
    text = _text(table, scale * statistics.fmean(values), spread)
    return text if len(values) == len(found) else f"{text} ({len(values)} of {len(found)} seeds)"


def _published(table: Table, value: float | tuple[float, float] | None) -> str:
    return MISSING if value is None else _text(table, *(value if isinstance(value, tuple) else (value,)))


def _text(table: Table, mean: float, spread: float | None = None) -> str:
    digits = 2 if table.percent or table.kind == "cost" else 3
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def print_reproduced(reproduction: Reproduction, console: Console | None = None) -> None:
    """Print our values, and the paper's under each row."""
    console = console or people_console()
    console.print(Text(reproduction.notice), soft_wrap=True)
    if reproduction.table.note:
        console.print(Text(reproduction.table.note), soft_wrap=True)
    for block in blocks(reproduction):
        method, values_of, *names, remarks = block.headings
        rows = [
            [
                Text(cell, "bold" if line.source == "ours" else "dim")
                for cell in (line.label, line.values_of, *line.cells)
            ]
            + [Text(line.remark, "dim")]
            for line in block.lines
        ]
        texts = (Column(name, overflow="fold", min_width=12) for name in (method, values_of))
        columns = (*texts, *names, Column(remarks, overflow="fold", min_width=12))
        console.print(text_table(columns, rows, title=f"{reproduction.table.title}: {block.title}", num_texts=2))
    for mark, letter in reproduction.legend.items():
        console.print(Text(f"{letter}: {mark}"), soft_wrap=True)


def write_reproduced(reproduction: Reproduction, out: Path) -> Path:
    """Write one self-contained HTML page; returns `out`."""
    from icalib.reports.page import write_page

    return write_page(
        "paper_table.html.j2",
        out,
        title=reproduction.table.title,
        reproduction=reproduction,
        table=reproduction.table,
        blocks=blocks(reproduction),
        runs=[
            (
                run.name,
                read_json(run.path / "provenance.json")["started"][:16].replace("T", " "),
                run_command(run.path.resolve() / "config.yaml", run.path.resolve().parents[1]),
            )
            for one in reproduction.rows
            for run in one.runs
        ],
    )
