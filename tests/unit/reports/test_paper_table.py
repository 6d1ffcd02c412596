"""Ours beside the paper's: what terminal and page say."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev

from rich.console import Console
from unit.reports.pages import read_page, visible

from icalib.core.run_folder import RunFolder
from icalib.reports.paper_table import Reproduction, TableRow, blocks, print_reproduced, write_reproduced
from icalib.tables.table import Table

ROWS = [
    {"label": "TSST", "method": "tsst", "published": [{"corpus": "MSDialog", "values": {"F1": 53.14, "ECE": 1.5}}]},
    {"label": "GONE", "method": "gone"},
    {"label": "ICAST", "method": "icast", "published": [{"corpus": "MSDialog", "values": {"F1": [55.65, 0.5]}}]},
]


def table(**changes: object) -> Table:
    values = {"title": "T <1>", "source": "Paper, Table 9", "kind": "metrics", "corpora": ["MSDialog"],
              "metrics": ["F1", "ECE"], "rows": ROWS}  # fmt: skip
    return Table.model_validate({**values, **changes})


def reproduction(
    runs: list[RunFolder], made: Table, *, corpus: str | None = None, marks: Sequence[str] = ()
) -> Reproduction:
    by_method = {method: tuple(run for run in runs if run.result["method"] == method) for method in ("tsst", "icast")}
    rows = tuple(
        TableRow(
            row,
            0.05,
            marks=tuple(marks),
            runs=by_method.get(row.method, ()),
            error="" if row.method in by_method else "no method `gone`.",
        )
        for row in made.rows
    )
    return Reproduction(made, "desk", corpus, "icalib reproduce mine.yaml", rows)


def test_ours_are_means_over_the_seeds_and_theirs_stand_below(runs: list[RunFolder]) -> None:
    (block,) = blocks(reproduction(runs, table()))
    assert [(line.label, line.source) for line in block.lines] == [
        ("TSST", "ours"), ("", "MSDialog"), ("GONE", "ours"), ("ICAST", "ours"), ("", "MSDialog"),
    ]  # fmt: skip
    values = [run.result["test"]["F1"] for run in runs if run.result["method"] == "tsst"]
    assert block.lines[0].cells[0] == f"{fmean(values):.3f} ± {stdev(values):.3f}"
    assert block.lines[-1].cells == ("55.650 ± 0.500", "–")


def test_values_of_another_protocol_are_marked_wherever_they_stand(runs: list[RunFolder], tmp_path: Path) -> None:
    made = reproduction(runs, table(), marks=["backbone minilm, the paper: bert", "1 seed, the paper: 5"])
    (block,) = blocks(made)
    assert [line.values_of for line in block.lines] == ["ours a,b", "MSDialog", "ours", "ours a,b", "MSDialog"]
    stream = StringIO()
    print_reproduced(made, Console(file=stream, width=100))
    for text in (stream.getvalue(), visible(read_page(write_reproduced(made, tmp_path / "t.html")))):
        assert "ours a,b" in text
        assert "b: 1 seed, the paper: 5" in text


def test_per_cent_tables_show_ours_in_per_cent(runs: list[RunFolder]) -> None:
    (block,) = blocks(reproduction(runs, table(percent=True)))
    values = [100 * run.result["test"]["F1"] for run in runs if run.result["method"] == "tsst"]
    assert block.lines[0].cells[0] == f"{fmean(values):.2f} ± {stdev(values):.2f}"
    assert block.lines[1].cells == ("53.14", "1.50")


def test_a_value_that_a_seed_lacks_says_of_how_many_it_is(runs: list[RunFolder], tmp_path: Path) -> None:
    """As a precision, where nothing is above the threshold."""
    first, second = [RunFolder(shutil.copytree(run.path, tmp_path / run.name)) for run in runs if "tsst" in run.name]
    test = {name: value for name, value in second.result["test"].items() if name != "F1"}
    second.write_json("result.json", {**second.result, "test": test})
    (block,) = blocks(reproduction([first, second], table()))
    assert block.lines[0].cells[0] == f"{first.result['test']['F1']:.3f} (1 of 2 seeds)"
    assert "seeds" not in block.lines[0].cells[1]


def evaluate_on(run: RunFolder, other: Path, number: int, f1: float) -> RunFolder:
    """A copy of the run, evaluated on another pool set."""
    copy = RunFolder(shutil.copytree(run.path, other.parent / f"{number}-{run.name}"))
    shift = RunFolder(copy.shift_path(other.name))
    shift.write_table("predictions.parquet", run.predictions("test"))
    shift.write_json("result.json", {"data": str(other), "test": {"F1": f1, "ECE": 0.1}})
    return copy


def test_each_fraction_has_a_block_for_each_other_pool_set(runs: list[RunFolder], tmp_path: Path) -> None:
    fractions = (0.01, 0.05)
    published = [{"corpus": "A", "test": "B", "labelled": part, "values": {"F1": part}} for part in fractions]
    rows = [{"label": label, "method": label.lower(), "published": published} for label in ("TSST", "ICAST")]
    made = table(kind="shift", corpora=["A", "B"], rows=rows)
    done = [
        TableRow(row, fraction, runs=tuple(
            evaluate_on(run, tmp_path / "garage", int(1000 * fraction), fraction)
            for run in runs if run.result["method"] == row.method
        ))
        for fraction in fractions for row in made.rows
    ]  # fmt: skip
    others = {"garage": ("B", ("another split",))}
    shifted = blocks(Reproduction(made, "desk", "A", "icalib", tuple(done), others))[2:]
    for block, fraction in zip(shifted, fractions, strict=True):
        assert [line.cells[0] for line in block.lines] == [f"{fraction:.3f} ± 0.000", f"{fraction:.3f}"] * 2
        assert {line.values_of for line in block.lines} == {"ours a", "A → B"}
        assert {(test.first, test.second) for test in block.tests} == {("TSST", "ICAST")}
