"""A reproduced table: our values beside the paper's, as lines that terminal, Markdown and HTML show alike.

Our values are marked with a letter for each way in which they differ from the paper's protocol; the letters are
explained below the table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, final

from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.reports.comparison import ARROWS, MISSING, data_name, format_seconds
from icalib.reports.paired_tests import MethodTest, paired_tests
from icalib.tables.table import Row, Table, Value

if TYPE_CHECKING:
    from icalib.data.schema import PoolSet
    from icalib.pipeline.run import RunSettings
    from icalib.scoring.cost import Cost

_COSTS = {"parameters": "parameters (M)", "milliseconds": "ms a pair", "ratio": "ratio to the first"}


_CORPORA = {"msdialog": "MSDialog", "mantis": "MANtIS", "mantis-tsv": "MANtIS", "udc": "UDC"}
"""The papers' corpora, by the reader of their raw files."""


@final
@dataclass(frozen=True)
class TableRow:
    """A row of a table with one labelled fraction, and what became of it.

    Args:
        row: the row.
        labelled: labelled fraction.
        settings: of its runs, one for each seed; none where it can't run.
        marks: sentences that say where the runs differ from the paper's protocol.
        runs: those that are finished.
        error: what went wrong.
        cost: size and time, in tables about cost.
    """

    row: Row
    labelled: float
    settings: tuple[RunSettings, ...] = ()
    marks: tuple[str, ...] = ()
    runs: tuple[RunFolder, ...] = ()
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
    """A table, and what was run for it.

    Args:
        table: the table.
        data: name of the pools.
        corpus: which of the table's corpora they are; None if none of them.
        command: what was typed.
        rows: the rows, in order.
        others: for each of the other pools that the runs were evaluated on, its corpus and its marks.
    """

    table: Table
    data: str
    corpus: str | None
    command: str
    rows: tuple[TableRow, ...]
    others: Mapping[str, tuple[str | None, tuple[str, ...]]] = field(default_factory=dict)

    @property
    def fractions(self) -> list[float]:
        """Labelled fractions, ascending."""
        return sorted({one.labelled for one in self.rows})

    @property
    def legend(self) -> dict[str, str]:
        """Return the letter of each way in which our values differ from the paper's protocol."""
        every = [mark for one in self.rows for mark in one.marks]
        every += [mark for name in self.others for mark in self.shift_marks(name)]
        return dict(zip(dict.fromkeys(every), _names(), strict=False))

    def shift_marks(self, other: str) -> list[str]:
        """Return where another pool set differs from what the paper tested on."""
        return [f"tested on {other}: {mark}" for mark in self.others[other][1]]

    @property
    def notice(self) -> str:
        """Say what a reader must know first: whether our values may be compared with the paper's."""
        if not self.legend:
            return f"Run on {self.data} with the paper's protocol; where it leaves something open: docs/papers.md."
        return (
            "Letters mark values of ours whose protocol isn't the paper's: compare the order of the methods and the "
            "size of their differences, not the values."
        )


def _names() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    yield from ascii_lowercase
    yield from ("".join(pair) for pair in product(ascii_lowercase, repeat=2))


@final
@dataclass(frozen=True)
class Line:
    """One line of a block; `source` is empty for ours, else the corpus of a paper's values.

    `made` says how ours came about: seeds and mean time; `remark` what must be known of it.
    """

    label: str
    source: str
    cells: tuple[str, ...]
    made: str = ""
    remark: str = ""
    failed: bool = False


@final
@dataclass(frozen=True)
class Block:
    """Values that can be compared: of one labelled fraction, trained and tested on the same.

    A group is a row of the table: ours, then the paper's.
    """

    title: str
    columns: tuple[str, ...]
    groups: tuple[tuple[Line, ...], ...]
    tests: tuple[MethodTest, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """All lines, row after row."""
        return [line for group in self.groups for line in group]


def blocks(reproduction: Reproduction) -> list[Block]:
    """A block for each labelled fraction, and in it for each other pool set that the runs were evaluated on."""
    made = [_block(reproduction, fraction) for fraction in reproduction.fractions]
    return made + [
        _block(reproduction, fraction, other) for fraction in reproduction.fractions for other in reproduction.others
    ]


def _block(reproduction: Reproduction, fraction: float, other: str | None = None) -> Block:
    trained = f"{reproduction.data}, {fraction:.3g} labelled"
    return Block(
        title=trained if other is None else f"trained on {trained}, tested on {other}",
        columns=_columns(reproduction.table),
        groups=tuple(
            (_ours(reproduction, one, other), *_theirs(reproduction, one, other))
            for one in reproduction.rows
            if one.labelled == fraction
        ),
        tests=() if reproduction.table.kind == "cost" else _tests(reproduction, fraction, other),
    )


def _ours(reproduction: Reproduction, one: TableRow, other: str | None) -> Line:
    table = reproduction.table
    marks = [*one.marks, *(() if other is None else reproduction.shift_marks(other))]
    letters = ",".join(reproduction.legend[mark] for mark in dict.fromkeys(marks))
    if table.kind == "cost":
        values = _cost_cells(table, one.cost)
    elif other is None:
        values = _cells(table, [run.result["test"] for run in one.runs])
    else:
        shifts = [result for run in one.runs for result in run.shifts() if data_name(result) == other]
        values = _cells(table, [result["test"] for result in shifts])
    seconds = statistics.fmean(run.result["seconds"]["total"] for run in one.runs) if one.runs else None
    seeds = f"{len(one.runs)} {'seed' if len(one.runs) == 1 else 'seeds'}" if one.runs else ""
    return Line(
        label=one.row.label,
        source="",
        cells=tuple(f"{value} {letters}" if letters and value != MISSING else value for value in values),
        made=_joined([seeds, format_seconds(seconds) if seconds is not None and other is None else ""]),
        remark=_joined([one.row.note, one.error]),
        failed=bool(one.error),
    )


def _theirs(reproduction: Reproduction, one: TableRow, other: str | None) -> list[Line]:
    """The paper's lines for our corpora; where ours is none of the paper's, those for all of its corpora."""
    trained_on = reproduction.corpus
    tested_on = None if other is None else reproduction.others[other][0]
    return [
        Line(
            "",
            each.corpus if each.test is None else f"{each.corpus} → {each.test}",
            tuple(
                _text(reproduction.table, each.values[metric]) if metric in each.values else MISSING
                for metric in reproduction.table.metrics
            ),
        )
        for each in one.row.published
        if (each.labelled is None or abs(each.labelled - one.labelled) < 1e-9)
        and (each.test is None) == (other is None)
        and (trained_on is None or each.corpus == trained_on)
        and (tested_on is None or each.test == tested_on)
    ]


def _joined(parts: Sequence[str]) -> str:
    return "; ".join(part for part in parts if part)


def _cells(table: Table, results: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    return tuple(_spread(table, [result[metric] for result in results if metric in result]) for metric in table.metrics)


def _cost_cells(table: Table, cost: Cost | None) -> tuple[str, ...]:
    if cost is None:
        return tuple(MISSING for _ in table.metrics)
    values = {
        "parameters": f"{(cost.num_parameters + cost.num_fixed) / 1e6:.2f}",  # random features and posteriors, too
        "milliseconds": f"{cost.milliseconds_per_pair:.2f}",
        "ratio": f"{cost.ratio:.2f} ({cost.ratio_low:.2f}–{cost.ratio_high:.2f})",
    }
    return tuple(values[metric] for metric in table.metrics)


def _spread(table: Table, values: Sequence[float]) -> str:
    """The mean over seeds, with the paper's kind of ±."""
    if not values:
        return MISSING
    scale, spread = (100 if table.percent else 1), None
    if len(values) > 1:
        of_mean = math.sqrt(len(values)) if table.spread == "standard error" else 1.0
        spread = scale * statistics.stdev(values) / of_mean
    return _text(table, Value(mean=scale * statistics.fmean(values), spread=spread))


def _text(table: Table, value: Value) -> str:
    digits = 2 if table.percent or table.kind == "cost" else 3
    spread = "" if value.spread is None else f" ± {value.spread:.{digits}f}"
    return f"{value.mean:.{digits}f}{spread}"


def _columns(table: Table) -> tuple[str, ...]:
    if table.kind == "cost":
        return tuple(_COSTS[metric] for metric in table.metrics)
    unit = " %" if table.percent else ""
    return tuple(f"{metric}{unit}{ARROWS[find_metric(metric).direction]}" for metric in table.metrics)


def _tests(reproduction: Reproduction, fraction: float, other: str | None = None) -> tuple[MethodTest, ...]:
    """Each method against the last row, which is the paper's own; on another pool set where one is named."""
    rows = [one for one in reproduction.rows if one.labelled == fraction]
    runs = {one.row.label: [run for run in one.runs if other is None or run.has_shift(other)] for one in rows}
    runs = {label: members for label, members in runs.items() if members}
    last = reproduction.table.rows[-1].label
    if last not in runs or len(runs) < 2:
        return ()
    try:
        return tuple(paired_tests(runs, against=last, shift=other))
    except DataError:  # the runs were limited to other test pools
        return ()


def spread_note(table: Table) -> str:
    """Say what ± is."""
    return f"± is the {table.spread} over the seeds, as in the paper." if table.spread else "The paper has no ±."


def write_markdown(reproduction: Reproduction, out: Path) -> Path:
    """Write the blocks as Markdown tables; returns `out`."""
    from icalib.core.files import whole_file

    table = reproduction.table
    text = [
        f"# {table.title}",
        "",
        reproduction.notice,
        "",
        *([table.note, ""] if table.note else []),
        f"{table.source}. {spread_note(table)} Ours:",
        "",
        f"    {reproduction.command}",
    ]
    for block in blocks(reproduction):
        text += [
            "",
            f"## {block.title}",
            "",
            *_markdown_table(block),
        ]
        if block.tests:
            text += ["", "Paired permutation tests on the test pools:", ""]
            text += [
                f"- {test.metric}: {test.first} − {test.second} = {test.difference:+.3f}, p = {test.p_value:.3f}, "
                f"by Holm {test.p_holm:.3f}"
                for test in block.tests
            ]
    if reproduction.legend:
        text += ["", "## Where ours isn't the paper's protocol", ""]
        text += [f"- {letter}: {mark}" for mark, letter in reproduction.legend.items()]
    with whole_file(out) as temporary:
        temporary.write_text("\n".join(text) + "\n", encoding="utf-8")
    return out


def _markdown_table(block: Block) -> list[str]:
    header = ("method", "values of", *block.columns, "")
    rows = [
        (
            f"**{line.label}**" if line.label else "",
            line.source or "ours",
            *line.cells,
            _joined([line.made, line.remark]),
        )
        for line in block.lines
    ]
    return [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        for row in (header, tuple("---" for _ in header), *rows)
    ]
