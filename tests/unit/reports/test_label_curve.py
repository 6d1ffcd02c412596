"""What a label curve's words and picture say at their edges."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.reports.fake_runs import write_pools, write_run

from icalib.reports.charts import label_curve_figure
from icalib.reports.label_curve import label_curve, next_labels_worth


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
