"""What a label curve's words and picture say at their edges."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from unit.reports.fake_runs import write_pools, write_run

from icalib.reports.charts import label_curve_figure
from icalib.reports.label_curve import label_curve, next_labels_worth
from icalib.reports.terminal import print_label_curve


def test_the_next_labels_are_worth_what_a_doubling_adds_to_the_log_odds() -> None:
    assert next_labels_worth((50, 0.5), (100, 0.6)) == pytest.approx(0.36 / 0.52 - 0.6)  # odds 1, 1.5, 2.25
    assert 0 < next_labels_worth((60, 0.738), (120, 0.908)) < 1 - 0.908
    assert next_labels_worth((60, 0.4), (70, 0.1)) == pytest.approx(-0.1, abs=0.01)
    assert next_labels_worth((60, 0.9), (120, 1.0)) == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize("numbers", [(24,), (12, 24)])
def test_lines_without_labels_have_a_length(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    data = write_pools(tmp_path / "desk")
    line = write_run(tmp_path, data, "bm25", 1)
    run = write_run(tmp_path, data, "tsst", 1)
    figure = label_curve_figure(label_curve("desk", "test", {number: [run] for number in numbers}, [line]))
    lines = [trace for trace in figure.data if trace.mode == "lines" and trace.name == "bm25"]
    assert lines
    assert all(trace.x[0] < trace.x[1] for trace in lines)


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_a_spread_is_named_where_there_is_one(tmp_path: Path, num_seeds: int) -> None:
    data, stream = write_pools(tmp_path / "desk"), StringIO()
    runs = [write_run(tmp_path, data, "tsst", seed) for seed in range(1, num_seeds + 1)]
    curve = label_curve("desk", "test", {12: runs}, [write_run(tmp_path, data, "bm25", 1)])
    print_label_curve(curve, Console(file=stream, width=120))
    assert ("one seed" in stream.getvalue(), "± sd over seeds" in stream.getvalue()) == (num_seeds == 1, num_seeds > 1)
