"""A reproduced table: our values beside the paper's, as lines that terminal, Markdown and HTML show alike."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.metrics.catalogue import find_metric
from icalib.reports.comparison import ARROWS, MISSING, data_name, format_seconds
from icalib.reports.paired_tests import MethodTest, paired_tests
from icalib.tables.table import Published, PublishedValue, Row, Table

if TYPE_CHECKING:
    from icalib.scoring.cost import Cost

_COSTS = {"parameters": "parameters (M)", "milliseconds": "ms a pair", "ratio": "ratio to the first"}


@final
@dataclass(frozen=True)
class RowRuns:
    """The outcome of one row with one labelled fraction: finished runs by seed, and what went wrong."""

    row: Row
    labelled: float
    runs: tuple[RunFolder, ...] = ()
    error: str = ""
    cost: Cost | None = None


@final
@dataclass(frozen=True)
class Reproduction:
    """A table, and what was run for it."""

    table: Table
    data: str
    command: str
    rows: tuple[RowRuns, ...]

    @property
    def fractions(self) -> list[float]:
        """Labelled fractions, ascending."""
        return sorted({one.labelled for one in self.rows})

    @property
    def notice(self) -> str:
        """Say whether the corpus is the paper's: the first thing that a reader must know."""
        corpora = self.table.corpora
        if any(_plain(corpus) == _plain(self.data) for corpus in corpora):
            return f"Run on {self.data}; the paper's corpora are {', '.join(corpora)}."
        theirs = f"the paper's corpora ({', '.join(corpora)})" if corpora else "the paper's corpora"
        return (
            f"Run on {self.data}, not on {theirs}: compare the order of the methods and the size of their differences, "
            "not the values."
        )


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
    others = _others(reproduction) if reproduction.table.kind == "shift" else []
    made = [_block(reproduction, fraction) for fraction in reproduction.fractions]
    return made + [
        _shift_block(reproduction, fraction, other) for fraction in reproduction.fractions for other in others
    ]


def _block(reproduction: Reproduction, fraction: float) -> Block:
    table = reproduction.table
    groups: list[tuple[Line, ...]] = []
    for one in _with_fraction(reproduction, fraction):
        results = [run.result["test"] for run in one.runs]
        spent = [run.result["seconds"]["total"] for run in one.runs]
        cells = _cost_cells(table, one.cost) if table.kind == "cost" else _cells(table, results)
        ours = _ours(one, cells, statistics.fmean(spent) if spent else None)
        theirs = [_theirs(table, published) for published in _published(one.row, fraction) if published.test is None]
        groups.append((ours, *theirs))
    return Block(
        title=f"{reproduction.data}, {fraction:.3g} labelled{_other_fractions(reproduction, fraction)}",
        columns=_columns(table),
        groups=tuple(groups),
        tests=() if table.kind == "cost" else _tests(reproduction, fraction),
    )


def _other_fractions(reproduction: Reproduction, fraction: float) -> str:
    """Which labelled fractions the paper has values for, if this is not one of them."""
    rows = [one.row for one in _with_fraction(reproduction, fraction)]
    published = {one.labelled for row in rows for one in row.published if one.labelled is not None}
    if not published or any(_published(row, fraction) for row in rows):
        return ""
    return f" (the paper has {', '.join(f'{one:.3g}' for one in sorted(published))})"


def _shift_block(reproduction: Reproduction, fraction: float, other: str) -> Block:
    table = reproduction.table
    groups: list[tuple[Line, ...]] = []
    for one in _with_fraction(reproduction, fraction):
        shifted = [result for run in one.runs for result in run.shifts() if data_name(result) == other]
        ours = _ours(one, _cells(table, [result["test"] for result in shifted]), None)
        theirs = [
            _theirs(table, published) for published in _published(one.row, fraction) if published.test is not None
        ]
        groups.append((ours, *theirs))
    return Block(
        title=f"trained on {reproduction.data}, {fraction:.3g} labelled, tested on {other}",
        columns=_columns(table),
        groups=tuple(groups),
        tests=_tests(reproduction, fraction, other),
    )


def _ours(one: RowRuns, cells: tuple[str, ...], seconds: float | None) -> Line:
    seeds = f"{len(one.runs)} {'seed' if len(one.runs) == 1 else 'seeds'}" if one.runs else ""
    made = [seeds, "" if seconds is None else format_seconds(seconds)]
    return Line(one.row.label, "", cells, _joined(made), _joined([one.row.note, one.error]), failed=bool(one.error))


def _joined(parts: Sequence[str]) -> str:
    return "; ".join(part for part in parts if part)


def _theirs(table: Table, published: Published) -> Line:
    where = published.corpus if published.test is None else f"{published.corpus} → {published.test}"
    cells = tuple(_published_text(table, published.values.get(metric)) for metric in table.metrics)
    return Line("", where, cells)


def _cells(table: Table, results: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    return tuple(_spread(table, [result[metric] for result in results if metric in result]) for metric in table.metrics)


def _cost_cells(table: Table, cost: Cost | None) -> tuple[str, ...]:
    if cost is None:
        return tuple(MISSING for _ in table.metrics)
    values = {
        "parameters": f"{cost.num_parameters / 1e6:.2f}",
        "milliseconds": f"{cost.milliseconds_per_pair:.2f}",
        "ratio": f"{cost.ratio:.2f} ({cost.ratio_low:.2f}–{cost.ratio_high:.2f})",
    }
    return tuple(values[metric] for metric in table.metrics)


def _spread(table: Table, values: Sequence[float]) -> str:
    if not values:
        return MISSING
    deviation = statistics.stdev(values) if len(values) > 1 else None
    scale = 100 if table.percent else 1
    return _text(
        table, PublishedValue(mean=scale * statistics.fmean(values), deviation=deviation and scale * deviation)
    )


def _published_text(table: Table, value: PublishedValue | None) -> str:
    return MISSING if value is None else _text(table, value)


def _text(table: Table, value: PublishedValue) -> str:
    digits = 2 if table.percent or table.kind == "cost" else 3
    spread = "" if value.deviation is None else f" ± {value.deviation:.{digits}f}"
    return f"{value.mean:.{digits}f}{spread}"


def _columns(table: Table) -> tuple[str, ...]:
    if table.kind == "cost":
        return tuple(_COSTS[metric] for metric in table.metrics)
    unit = " %" if table.percent else ""
    return tuple(f"{metric}{unit}{ARROWS[find_metric(metric).direction]}" for metric in table.metrics)


def _published(row: Row, fraction: float) -> list[Published]:
    """The paper's values for this labelled fraction; papers that name none had all pools labelled."""
    return [one for one in row.published if one.labelled is None or abs(one.labelled - fraction) < 1e-9]


def _tests(reproduction: Reproduction, fraction: float, other: str | None = None) -> tuple[MethodTest, ...]:
    """Each method against the last row, which is the paper's own; on another pool set where one is named."""
    rows = _with_fraction(reproduction, fraction)
    runs = {one.row.label: [run for run in one.runs if other is None or run.has_shift(other)] for one in rows}
    runs = {label: members for label, members in runs.items() if members}
    last = reproduction.table.rows[-1].label
    if last not in runs or len(runs) < 2:
        return ()
    try:
        return tuple(paired_tests(runs, against=last, shift=other))
    except DataError:  # the runs were limited to other test pools
        return ()


def _with_fraction(reproduction: Reproduction, fraction: float) -> list[RowRuns]:
    return [one for one in reproduction.rows if one.labelled == fraction]


def _others(reproduction: Reproduction) -> list[str]:
    shifts = (result for one in reproduction.rows for run in one.runs for result in run.shifts())
    return list(dict.fromkeys(data_name(result) for result in shifts))


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


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
        f"{table.source}. Ours:",
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
